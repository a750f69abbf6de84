# kernel k(x) -> y
# x f64 [8,4] heap
# y f64 [8,4] heap
# x_r f64 [8:N,4:N] ssr0
# y_w f64 [8:N,4:N] ssr1
#
# 8 4:u
# | x_r[{0},{1}] = x[{0},{1}]
# | y_w[{0},{1}] = exp(x_r[{0},{1}])
# | y[{0},{1}] = y_w[{0},{1}]

.text
.balign 4
.globl pd_kernel
.type pd_kernel, @function
pd_kernel:
    addi sp, sp, -432
    fsd fs0, 8(sp)
    fsd fs1, 16(sp)
    fsd fs2, 24(sp)
    sw ra, 32(sp)
    li t2, 1697350398
    sw t2, 176(sp)
    li t2, 1073157447
    sw t2, 180(sp)
    li t2, 4276092928
    sw t2, 184(sp)
    li t2, 1072049730
    sw t2, 188(sp)
    li t2, 897137782
    sw t2, 192(sp)
    li t2, 1038760431
    sw t2, 196(sp)
    sw zero, 200(sp)
    li t2, 1093664768
    sw t2, 204(sp)
    sw zero, 208(sp)
    sw zero, 212(sp)
    li t2, 3343797833
    sw t2, 216(sp)
    li t2, 1046140918
    sw t2, 220(sp)
    li t2, 1499963079
    sw t2, 224(sp)
    li t2, 1053236722
    sw t2, 228(sp)
    li t2, 2653484123
    sw t2, 232(sp)
    li t2, 1056571801
    sw t2, 236(sp)
    li t2, 312589654
    sw t2, 240(sp)
    li t2, 1059717536
    sw t2, 244(sp)
    li t2, 407079419
    sw t2, 248(sp)
    li t2, 1062650220
    sw t2, 252(sp)
    li t2, 286424298
    sw t2, 256(sp)
    li t2, 1065423121
    sw t2, 260(sp)
    li t2, 1431636031
    sw t2, 264(sp)
    li t2, 1067799893
    sw t2, 268(sp)
    li t2, 1431655673
    sw t2, 272(sp)
    li t2, 1069897045
    sw t2, 276(sp)
    li t2, 10
    sw t2, 280(sp)
    li t2, 1071644672
    sw t2, 284(sp)
    sw zero, 288(sp)
    li t2, 1072693248
    sw t2, 292(sp)
    sw zero, 296(sp)
    li t2, 1072693248
    sw t2, 300(sp)
    fence
    .insn i 0x2b, 2, x0, zero, 32 # scfgwi zero, 32
    li t0, 31
    .insn i 0x2b, 2, x0, t0, 95 # scfgwi t0, 95
    li t0, 8
    .insn i 0x2b, 2, x0, t0, 223 # scfgwi t0, 223
    li t0, 490000
    fcvt.d.w ft3, t0
    li t0, 1505755136
    fmv.w.x ft4, t0
    fcvt.d.s ft4, ft4
    li t0, 1072693248
    fmv.w.x ft5, t0
    li t0, 1127743488
    fmv.w.x ft6, t0
    .insn r 0x33, 0, 88, ft5, ft5, ft6 # vfcpka.s.s ft5, ft5, ft6
    li t0, 3054047010
    fmv.w.x ft6, t0
    li t0, 1049791193
    fmv.w.x ft7, t0
    .insn r 0x33, 0, 88, ft6, ft6, ft7 # vfcpka.s.s ft6, ft6, ft7
    # ssr0: x[{0},{1}]
    .insn i 0x2b, 2, x0, a0, 768 # scfgwi a0, 768
    # ssr1: y[{0},{1}]
    .insn i 0x2b, 2, x0, a1, 897 # scfgwi a1, 897
    csrsi 0x7c0, 1 # streams on
    li t0, 3
    .insn i 0x2b, 2, x0, t0, 34 # scfgwi t0, 34
    li t0, 15
    .insn i 0x2b, 2, x0, t0, 66 # scfgwi t0, 66
    li t0, 8
    .insn i 0x2b, 2, x0, t0, 194 # scfgwi t0, 194
    li t0, 7
    .insn i 0x2b, 2, x0, t0, 98 # scfgwi t0, 98
    li t0, -120
    .insn i 0x2b, 2, x0, t0, 226 # scfgwi t0, 226
    addi t0, sp, 176+0
    .insn i 0x2b, 2, x0, t0, 802 # scfgwi t0, 802
    li t0, 8
.Lpd_kernel_1:
    # x_r[{0},{1}] = x[{0},{1}]
    # y_w[{0},{1}] = exp(x_r[{0},{1}])
    # y_w[{0},{1}] = exp(x_r[{0},{1}])
    # y_w[{0},{1}] = exp(x_r[{0},{1}])
    # y_w[{0},{1}] = exp(x_r[{0},{1}])
    fmv.d ft7, ft0
    fmv.d ft8, ft0
    fmv.d ft9, ft0
    fmv.d ft10, ft0
    fmadd.d ft11, ft7, ft2, ft4
    fmadd.d fa0, ft8, ft2, ft4
    fmadd.d fa1, ft9, ft2, ft4
    fmadd.d fa2, ft10, ft2, ft4
    fmul.d fa3, ft7, ft7
    fsub.d ft11, ft11, ft4
    fsub.d fa0, fa0, ft4
    fsub.d fa1, fa1, ft4
    fsub.d fa2, fa2, ft4
    fmadd.d fa3, ft8, ft8, fa3
    fnmsub.d fa4, ft11, ft2, ft7
    fnmsub.d fa5, fa0, ft2, ft8
    fnmsub.d fa6, fa1, ft2, ft9
    fnmsub.d fa7, fa2, ft2, ft10
    fmadd.d fa3, ft9, ft9, fa3
    fnmsub.d fa4, ft11, ft2, fa4
    fnmsub.d fa5, fa0, ft2, fa5
    fnmsub.d fa6, fa1, ft2, fa6
    fnmsub.d fa7, fa2, ft2, fa7
    fmadd.d fa3, ft10, ft10, fa3
    fmadd.d ft11, ft11, ft2, ft5
    fmadd.d fa0, fa0, ft2, ft5
    fmadd.d fa1, fa1, ft2, ft5
    fmadd.d fa2, fa2, ft2, ft5
    flt.d t1, fa3, ft3
    .insn r 0x33, 0, 88, ft11, ft2, ft11 # vfcpka.s.s ft11, ft2, ft11
    .insn r 0x33, 0, 88, fa0, ft2, fa0 # vfcpka.s.s fa0, ft2, fa0
    .insn r 0x33, 0, 88, fa1, ft2, fa1 # vfcpka.s.s fa1, ft2, fa1
    .insn r 0x33, 0, 88, fa2, ft2, fa2 # vfcpka.s.s fa2, ft2, fa2
    fmadd.d fa3, fa4, ft2, ft6
    fmadd.d fs0, fa5, ft2, ft6
    fmadd.d fs1, fa6, ft2, ft6
    fmadd.d fs2, fa7, ft2, ft6
    fmadd.d fa3, fa3, fa4, ft2
    fmadd.d fs0, fs0, fa5, ft2
    fmadd.d fs1, fs1, fa6, ft2
    fmadd.d fs2, fs2, fa7, ft2
    fmadd.d fa3, fa3, fa4, ft2
    fmadd.d fs0, fs0, fa5, ft2
    fmadd.d fs1, fs1, fa6, ft2
    fmadd.d fs2, fs2, fa7, ft2
    fmadd.d fa3, fa3, fa4, ft2
    fmadd.d fs0, fs0, fa5, ft2
    fmadd.d fs1, fs1, fa6, ft2
    fmadd.d fs2, fs2, fa7, ft2
    fmadd.d fa3, fa3, fa4, ft2
    fmadd.d fs0, fs0, fa5, ft2
    fmadd.d fs1, fs1, fa6, ft2
    fmadd.d fs2, fs2, fa7, ft2
    fmadd.d fa3, fa3, fa4, ft2
    fmadd.d fs0, fs0, fa5, ft2
    fmadd.d fs1, fs1, fa6, ft2
    fmadd.d fs2, fs2, fa7, ft2
    fmadd.d fa3, fa3, fa4, ft2
    fmadd.d fs0, fs0, fa5, ft2
    fmadd.d fs1, fs1, fa6, ft2
    fmadd.d fs2, fs2, fa7, ft2
    fmadd.d fa3, fa3, fa4, ft2
    fmadd.d fs0, fs0, fa5, ft2
    fmadd.d fs1, fs1, fa6, ft2
    fmadd.d fs2, fs2, fa7, ft2
    fmadd.d fa3, fa3, fa4, ft2
    fmadd.d fs0, fs0, fa5, ft2
    fmadd.d fs1, fs1, fa6, ft2
    fmadd.d fs2, fs2, fa7, ft2
    fmadd.d fa3, fa3, fa4, ft2
    fmadd.d fs0, fs0, fa5, ft2
    fmadd.d fs1, fs1, fa6, ft2
    fmadd.d fs2, fs2, fa7, ft2
    fmadd.d fa3, fa3, fa4, ft2
    fmadd.d fa4, fs0, fa5, ft2
    fmadd.d fa5, fs1, fa6, ft2
    fmadd.d fa6, fs2, fa7, ft2
    bnez t1, .Lpd_kernel_2 # all arguments were ordinary
    fsd ft7, 304+0(sp)
    jal ra, .Lpd_kernel_rescue_exp
    fld fa3, 304(sp)
    li t1, 1
    fcvt.d.w ft11, t1
    fsd ft8, 304+0(sp)
    jal ra, .Lpd_kernel_rescue_exp
    fld fa4, 304(sp)
    li t1, 1
    fcvt.d.w fa0, t1
    fsd ft9, 304+0(sp)
    jal ra, .Lpd_kernel_rescue_exp
    fld fa5, 304(sp)
    li t1, 1
    fcvt.d.w fa1, t1
    fsd ft10, 304+0(sp)
    jal ra, .Lpd_kernel_rescue_exp
    fld fa6, 304(sp)
    li t1, 1
    fcvt.d.w fa2, t1
.Lpd_kernel_2:
    fmul.d ft1, fa3, ft11
    fmul.d ft1, fa4, fa0
    fmul.d ft1, fa5, fa1
    fmul.d ft1, fa6, fa2
    # y[{0},{1}] = y_w[{0},{1}]
    addi t0, t0, -1
    bnez t0, .Lpd_kernel_1
    li a0, 0
    csrci 0x7c0, 1 # streams off
    .insn i 0x2b, 1, zero, x0, 1 # scfgri zero, 1
    .insn i 0x2b, 1, zero, x0, 1 # scfgri zero, 1
    .insn i 0x2b, 1, zero, x0, 1 # scfgri zero, 1
.Lpd_kernel_3:
    .insn i 0x2b, 1, t0, x0, 1 # scfgri t0, 1
    bgez t0, .Lpd_kernel_3
    fld fs0, 8(sp)
    fld fs1, 16(sp)
    fld fs2, 24(sp)
    lw ra, 32(sp)
    addi sp, sp, 432
    ret
.Lpd_kernel_rescue_exp:
    sw t1, 320(sp)
    sw t2, 328(sp)
    sw t3, 336(sp)
    sw t4, 344(sp)
    sw t5, 352(sp)
    sw t6, 360(sp)
    fsd fa0, 368(sp)
    fsd fa1, 376(sp)
    fsd fa2, 384(sp)
    fsd fa3, 392(sp)
    fsd fa4, 400(sp)
    fsd fa5, 408(sp)
    fsd fa6, 416(sp)
    fsd fa7, 424(sp)
    sw zero, 40(sp)
    li t2, 1082535936
    sw t2, 44(sp)
    sw zero, 48(sp)
    li t2, 3230093312
    sw t2, 52(sp)
    li t2, 1697350398
    sw t2, 56(sp)
    li t2, 1073157447
    sw t2, 60(sp)
    li t2, 4276092928
    sw t2, 64(sp)
    li t2, 1072049730
    sw t2, 68(sp)
    li t2, 897137782
    sw t2, 72(sp)
    li t2, 1038760431
    sw t2, 76(sp)
    li t2, 329805065
    sw t2, 80(sp)
    li t2, 1038488134
    sw t2, 84(sp)
    li t2, 4026063000
    sw t2, 88(sp)
    li t2, 1042411224
    sw t2, 92(sp)
    li t2, 1744127204
    sw t2, 96(sp)
    li t2, 1046144581
    sw t2, 100(sp)
    li t2, 3078135644
    sw t2, 104(sp)
    li t2, 1049787983
    sw t2, 108(sp)
    li t2, 2773927732
    sw t2, 112(sp)
    li t2, 1053236707
    sw t2, 116(sp)
    li t2, 436314138
    sw t2, 120(sp)
    li t2, 1056571808
    sw t2, 124(sp)
    li t2, 436314138
    sw t2, 128(sp)
    li t2, 1059717536
    sw t2, 132(sp)
    li t2, 381774871
    sw t2, 136(sp)
    li t2, 1062650220
    sw t2, 140(sp)
    li t2, 286331153
    sw t2, 144(sp)
    li t2, 1065423121
    sw t2, 148(sp)
    li t2, 1431655765
    sw t2, 152(sp)
    li t2, 1067799893
    sw t2, 156(sp)
    li t2, 1431655765
    sw t2, 160(sp)
    li t2, 1069897045
    sw t2, 164(sp)
    sw zero, 168(sp)
    li t2, 1071644672
    sw t2, 172(sp)
    fld fa0, 304(sp)
    fld fa1, 312(sp)
    addi t2, sp, 40
    jal t1, .Lpd_kernel_exp
    fsd fa0, 304(sp)
    lw t1, 320(sp)
    lw t2, 328(sp)
    lw t3, 336(sp)
    lw t4, 344(sp)
    lw t5, 352(sp)
    lw t6, 360(sp)
    fld fa0, 368(sp)
    fld fa1, 376(sp)
    fld fa2, 384(sp)
    fld fa3, 392(sp)
    fld fa4, 400(sp)
    fld fa5, 408(sp)
    fld fa6, 416(sp)
    fld fa7, 424(sp)
    ret
.Lpd_kernel_exp:
    feq.d t3, fa0, fa0
    beqz t3, .Lpd_kernel_exp_done
    fld fa1, 0(t2)
    fld fa2, 8(t2)
    fmin.d fa0, fa0, fa1
    fmax.d fa0, fa0, fa2
    fld fa1, 16(t2)
    fmul.d fa2, fa0, fa1
    fcvt.w.d t3, fa2, rne
    fcvt.d.w fa2, t3
    fld fa1, 24(t2)
    fnmsub.d fa3, fa2, fa1, fa0
    fld fa1, 32(t2)
    fnmsub.d fa3, fa2, fa1, fa3
    fmul.d fa6, fa3, fa3
    fld fa5, 40(t2)
    fld fa4, 48(t2)
    fmadd.d fa5, fa5, fa3, fa4
    fld fa4, 56(t2)
    fmadd.d fa5, fa5, fa3, fa4
    fld fa4, 64(t2)
    fmadd.d fa5, fa5, fa3, fa4
    fld fa4, 72(t2)
    fmadd.d fa5, fa5, fa3, fa4
    fld fa4, 80(t2)
    fmadd.d fa5, fa5, fa3, fa4
    fld fa4, 88(t2)
    fmadd.d fa5, fa5, fa3, fa4
    fld fa4, 96(t2)
    fmadd.d fa5, fa5, fa3, fa4
    fld fa4, 104(t2)
    fmadd.d fa5, fa5, fa3, fa4
    fld fa4, 112(t2)
    fmadd.d fa5, fa5, fa3, fa4
    fld fa4, 120(t2)
    fmadd.d fa5, fa5, fa3, fa4
    fld fa4, 128(t2)
    fmadd.d fa5, fa5, fa3, fa4
    fmadd.d fa5, fa5, fa6, fa3
    li t4, 1
    fcvt.d.w fa4, t4
    fadd.d fa5, fa5, fa4
    addi sp, sp, -16
    sw zero, 0(sp)
    srai t4, t3, 1
    sub t3, t3, t4
    addi t4, t4, 1023
    slli t4, t4, 20
    sw t4, 4(sp)
    fld fa4, 0(sp)
    fmul.d fa5, fa5, fa4
    addi t3, t3, 1023
    slli t3, t3, 20
    sw t3, 4(sp)
    fld fa4, 0(sp)
    fmul.d fa0, fa5, fa4
    addi sp, sp, 16
.Lpd_kernel_exp_done:
    jr t1
.size pd_kernel, .-pd_kernel

.globl pd_kernel_workspace_bytes
.type pd_kernel_workspace_bytes, @function
pd_kernel_workspace_bytes:
    li a0, 0
    ret
.size pd_kernel_workspace_bytes, .-pd_kernel_workspace_bytes
