# kernel ddot(x, y) -> r
# x f64 [128] heap
# y f64 [128] heap
# r f64 [1] heap
#
# r[0] = 0
# 128 r[0] += x[{0}] * y[{0}]

.text
.balign 4
.globl pd_ddot_128_f64
.type pd_ddot_128_f64, @function
pd_ddot_128_f64:
    fcvt.d.w ft3, zero
    # r[0] = 0
    fsd ft3, 0(a2)
    mv t0, a0
    mv t1, a1
    addi t2, t0, 1024
.Lpd_ddot_128_f64_1:
    # r[0] += x[{0}] * y[{0}]
    fld ft3, 0(a2)
    fld ft4, 0(t0)
    fld ft5, 0(t1)
    fmadd.d ft3, ft4, ft5, ft3
    fsd ft3, 0(a2)
    addi t0, t0, 8
    addi t1, t1, 8
    bne t0, t2, .Lpd_ddot_128_f64_1
    li a0, 0
    ret
.size pd_ddot_128_f64, .-pd_ddot_128_f64

.globl pd_ddot_128_f64_workspace_bytes
.type pd_ddot_128_f64_workspace_bytes, @function
pd_ddot_128_f64_workspace_bytes:
    li a0, 0
    ret
.size pd_ddot_128_f64_workspace_bytes, .-pd_ddot_128_f64_workspace_bytes
