# kernel smaxpool(x) -> y
# x f32 [6,6] heap
# y f32 [4,4] heap
#
# 4 4
# | y[{0},{1}] = -3.4028234663852886e+38
# | 3 3 y[{0},{1}] = select(x[{0}+{2},{1}+{3}] > y[{0},{1}], x[{0}+{2},{1}+{3}], y[{0},{1}])

.text
.balign 4
.globl pd_smaxpool_4x4_f32
.type pd_smaxpool_4x4_f32, @function
pd_smaxpool_4x4_f32:
    li t0, 4286578687
    fmv.w.x ft3, t0
    mv t0, a1
    mv t1, a0
    addi t2, t0, 64
.Lpd_smaxpool_4x4_f32_1:
    addi t3, t0, 16
.Lpd_smaxpool_4x4_f32_2:
    # y[{0},{1}] = -3.4028234663852886e+38
    fsw ft3, 0(t0)
    addi t4, t1, 72
.Lpd_smaxpool_4x4_f32_3:
    addi t5, t1, 12
.Lpd_smaxpool_4x4_f32_4:
    # y[{0},{1}] = select(x[{0}+{2},{1}+{3}] > y[{0},{1}], x[{0}+{2},{1}+{3}], y[{0},{1}])
    flw ft4, 0(t1)
    flw ft5, 0(t0)
    fmax.s ft4, ft4, ft5
    fsw ft4, 0(t0)
    addi t1, t1, 4
    bne t1, t5, .Lpd_smaxpool_4x4_f32_4
    addi t1, t1, 12
    bne t1, t4, .Lpd_smaxpool_4x4_f32_3
    addi t0, t0, 4
    addi t1, t1, -68
    bne t0, t3, .Lpd_smaxpool_4x4_f32_2
    addi t1, t1, 8
    bne t0, t2, .Lpd_smaxpool_4x4_f32_1
    li a0, 0
    ret
.size pd_smaxpool_4x4_f32, .-pd_smaxpool_4x4_f32

.globl pd_smaxpool_4x4_f32_workspace_bytes
.type pd_smaxpool_4x4_f32_workspace_bytes, @function
pd_smaxpool_4x4_f32_workspace_bytes:
    li a0, 0
    ret
.size pd_smaxpool_4x4_f32_workspace_bytes, .-pd_smaxpool_4x4_f32_workspace_bytes
