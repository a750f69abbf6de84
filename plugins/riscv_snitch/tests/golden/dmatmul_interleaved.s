# kernel dmatmul(a, b) -> c
# a f64 [4,16] heap
# b f64 [16,8] heap
# c f64 [4,8] heap
# c_w f64 [4:N,2:N,4] reg
# b_r f64 [2:N,16:N,4:N] ssr1
# a_r f64 [4:N,16:N] ssr0
# c_w_2 f64 [4:N,2:N,4:N] ssr2
#
# 4 2
# | 4:u c_w[{0},{1},{2}] = 0
# | 16:frep
# | | a_r[{0},{2}] = a[{0},{2}]
# | | 4:u
# | | | b_r[{1},{2},{3}] = b[{2},{1}*4+{3}]
# | | | c_w[{0},{1},{3}] += a_r[{0},{2}] * b_r[{1},{2},{3}]
# | 4:u
# | | c_w_2[{0},{1},{2}] = c_w[{0},{1},{2}]
# | | c[{0},{1}*4+{2}] = c_w_2[{0},{1},{2}]

.text
.balign 4
.globl pd_kernel
.type pd_kernel, @function
pd_kernel:
    .insn i 0x2b, 2, x0, zero, 33 # scfgwi zero, 33
    li t0, 3
    .insn i 0x2b, 2, x0, t0, 32 # scfgwi t0, 32
    .insn i 0x2b, 2, x0, t0, 65 # scfgwi t0, 65
    li t1, 15
    .insn i 0x2b, 2, x0, t1, 64 # scfgwi t1, 64
    li t2, 31
    .insn i 0x2b, 2, x0, t2, 66 # scfgwi t2, 66
    .insn i 0x2b, 2, x0, t1, 97 # scfgwi t1, 97
    li t1, 1
    .insn i 0x2b, 2, x0, t1, 96 # scfgwi t1, 96
    .insn i 0x2b, 2, x0, t1, 129 # scfgwi t1, 129
    .insn i 0x2b, 2, x0, t0, 128 # scfgwi t0, 128
    .insn i 0x2b, 2, x0, t0, 161 # scfgwi t0, 161
    li t0, 8
    .insn i 0x2b, 2, x0, t0, 223 # scfgwi t0, 223
    li t1, 40
    .insn i 0x2b, 2, x0, t1, 225 # scfgwi t1, 225
    li t1, -120
    .insn i 0x2b, 2, x0, t1, 224 # scfgwi t1, 224
    li t1, -952
    .insn i 0x2b, 2, x0, t1, 257 # scfgwi t1, 257
    .insn i 0x2b, 2, x0, t0, 256 # scfgwi t0, 256
    li t0, -1016
    .insn i 0x2b, 2, x0, t0, 289 # scfgwi t0, 289
    fcvt.d.w ft3, zero
    # ssr1: b[{2},{1}*4+{3}]
    .insn i 0x2b, 2, x0, a1, 865 # scfgwi a1, 865
    # ssr0: a[{0},{2}]
    .insn i 0x2b, 2, x0, a0, 832 # scfgwi a0, 832
    # ssr2: c[{0},{1}*4+{2}]
    .insn i 0x2b, 2, x0, a2, 898 # scfgwi a2, 898
    csrsi 0x7c0, 1 # streams on
    li t0, 4
.Lpd_kernel_1:
    li t1, 2
.Lpd_kernel_2:
    # c_w[{0},{1},{2}] = 0
    # c_w[{0},{1},{2}] = 0
    # c_w[{0},{1},{2}] = 0
    # c_w[{0},{1},{2}] = 0
    # the first time
    fmadd.d ft4, ft0, ft1, ft3
    fmadd.d ft5, ft0, ft1, ft3
    fmadd.d ft6, ft0, ft1, ft3
    fmadd.d ft7, ft0, ft1, ft3
    li t2, 13
    .insn i 0x0b, 0, x1, t2, 3 # frep.o t2, 4
    # a_r[{0},{2}] = a[{0},{2}]
    # b_r[{1},{2},{3}] = b[{2},{1}*4+{3}]
    # c_w[{0},{1},{3}] += a_r[{0},{2}] * b_r[{1},{2},{3}]
    fmadd.d ft4, ft0, ft1, ft4
    # b_r[{1},{2},{3}] = b[{2},{1}*4+{3}]
    # c_w[{0},{1},{3}] += a_r[{0},{2}] * b_r[{1},{2},{3}]
    fmadd.d ft5, ft0, ft1, ft5
    # b_r[{1},{2},{3}] = b[{2},{1}*4+{3}]
    # c_w[{0},{1},{3}] += a_r[{0},{2}] * b_r[{1},{2},{3}]
    fmadd.d ft6, ft0, ft1, ft6
    # b_r[{1},{2},{3}] = b[{2},{1}*4+{3}]
    # c_w[{0},{1},{3}] += a_r[{0},{2}] * b_r[{1},{2},{3}]
    fmadd.d ft7, ft0, ft1, ft7
    # the last time
    fmadd.d ft2, ft0, ft1, ft4
    fmadd.d ft2, ft0, ft1, ft5
    fmadd.d ft2, ft0, ft1, ft6
    fmadd.d ft2, ft0, ft1, ft7
    # c_w_2[{0},{1},{2}] = c_w[{0},{1},{2}]
    # c[{0},{1}*4+{2}] = c_w_2[{0},{1},{2}]
    # c_w_2[{0},{1},{2}] = c_w[{0},{1},{2}]
    # c[{0},{1}*4+{2}] = c_w_2[{0},{1},{2}]
    # c_w_2[{0},{1},{2}] = c_w[{0},{1},{2}]
    # c[{0},{1}*4+{2}] = c_w_2[{0},{1},{2}]
    # c_w_2[{0},{1},{2}] = c_w[{0},{1},{2}]
    # c[{0},{1}*4+{2}] = c_w_2[{0},{1},{2}]
    addi t1, t1, -1
    bnez t1, .Lpd_kernel_2
    addi t0, t0, -1
    bnez t0, .Lpd_kernel_1
    li a0, 0
    csrci 0x7c0, 1 # streams off
    .insn i 0x2b, 1, zero, x0, 2 # scfgri zero, 2
    .insn i 0x2b, 1, zero, x0, 2 # scfgri zero, 2
    .insn i 0x2b, 1, zero, x0, 2 # scfgri zero, 2
.Lpd_kernel_3:
    .insn i 0x2b, 1, t0, x0, 2 # scfgri t0, 2
    bgez t0, .Lpd_kernel_3
    ret
.size pd_kernel, .-pd_kernel

.globl pd_kernel_workspace_bytes
.type pd_kernel_workspace_bytes, @function
pd_kernel_workspace_bytes:
    li a0, 0
    ret
.size pd_kernel_workspace_bytes, .-pd_kernel_workspace_bytes
