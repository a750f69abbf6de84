# kernel dmatmul(a, b) -> c
# a f64 [4,16] heap
# b f64 [16,8] heap
# c f64 [4,8] heap
#
# 4 8
# | c[{0},{1}] = 0
# | 16 c[{0},{1}] += a[{0},{2}] * b[{2},{1}]

.text
.balign 4
.globl pd_dmatmul_4x16x8_f64
.type pd_dmatmul_4x16x8_f64, @function
pd_dmatmul_4x16x8_f64:
    fcvt.d.w ft3, zero
    mv t0, a2
    mv t1, a0
    addi t2, t0, 256
.Lpd_dmatmul_4x16x8_f64_1:
    mv t3, a1
    addi t4, t0, 64
.Lpd_dmatmul_4x16x8_f64_2:
    # c[{0},{1}] = 0
    fsd ft3, 0(t0)
    addi t5, t1, 128
.Lpd_dmatmul_4x16x8_f64_3:
    # c[{0},{1}] += a[{0},{2}] * b[{2},{1}]
    fld ft4, 0(t0)
    fld ft5, 0(t1)
    fld ft6, 0(t3)
    fmadd.d ft4, ft5, ft6, ft4
    fsd ft4, 0(t0)
    addi t1, t1, 8
    addi t3, t3, 64
    bne t1, t5, .Lpd_dmatmul_4x16x8_f64_3
    addi t0, t0, 8
    addi t1, t1, -128
    addi t3, t3, -1016
    bne t0, t4, .Lpd_dmatmul_4x16x8_f64_2
    addi t1, t1, 128
    bne t0, t2, .Lpd_dmatmul_4x16x8_f64_1
    li a0, 0
    ret
.size pd_dmatmul_4x16x8_f64, .-pd_dmatmul_4x16x8_f64

.globl pd_dmatmul_4x16x8_f64_workspace_bytes
.type pd_dmatmul_4x16x8_f64_workspace_bytes, @function
pd_dmatmul_4x16x8_f64_workspace_bytes:
    li a0, 0
    ret
.size pd_dmatmul_4x16x8_f64_workspace_bytes, .-pd_dmatmul_4x16x8_f64_workspace_bytes
