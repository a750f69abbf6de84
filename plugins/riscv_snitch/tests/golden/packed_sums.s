# kernel k(x, z) -> y
# x f32 [4,8] heap
# z f32 [4,8] heap
# y f32 [4] heap
# p f32 [4,2] reg
# s f32 [4] reg
# x_r f32 [4:N,4:N,2] ssr0
# z_r f32 [4:N,4:N,2] ssr1
# w f32 [2:N,2] ssr2
#
# 4:u 2:v p[{0},{1}] = 0
# 4:frep 4:u
# | 2:v x_r[{0},{1},{2}] = x[{1},{0}*2+{2}]
# | 2:v z_r[{0},{1},{2}] = z[{1},{0}*2+{2}]
# | 2:v p[{1},{2}] += x_r[{0},{1},{2}] * z_r[{0},{1},{2}]
# 4:u s[{0}] = 0
# 4:u 2:v s[{0}] += p[{0},{1}]
# 2:u
# | 2:v w[{0},{1}] = s[{0}*2+{1}]
# | 2:v y[{0}*2+{1}] = w[{0},{1}]

.text
.balign 4
.globl pd_kernel
.type pd_kernel, @function
pd_kernel:
    .insn i 0x2b, 2, x0, zero, 63 # scfgwi zero, 63
    li t0, 3
    .insn i 0x2b, 2, x0, t0, 95 # scfgwi t0, 95
    li t1, 1
    .insn i 0x2b, 2, x0, t1, 66 # scfgwi t1, 66
    .insn i 0x2b, 2, x0, t0, 127 # scfgwi t0, 127
    li t0, 32
    .insn i 0x2b, 2, x0, t0, 223 # scfgwi t0, 223
    li t0, 8
    .insn i 0x2b, 2, x0, t0, 194 # scfgwi t0, 194
    li t0, -88
    .insn i 0x2b, 2, x0, t0, 255 # scfgwi t0, 255
    fcvt.d.w ft3, zero
    fmv.w.x ft3, zero
    # p[{0},{1}] = 0
    # p[{0},{1}] = 0
    # p[{0},{1}] = 0
    # p[{0},{1}] = 0
    # ssr0: x[{1},{0}*2+{2}]
    .insn i 0x2b, 2, x0, a0, 800 # scfgwi a0, 800
    # ssr1: z[{1},{0}*2+{2}]
    .insn i 0x2b, 2, x0, a1, 801 # scfgwi a1, 801
    csrsi 0x7c0, 1 # streams on
    # the first time
    .insn r 0x33, 0, 67, ft4, ft0, ft1 # vfmul.s ft4, ft0, ft1
    .insn r 0x33, 0, 67, ft5, ft0, ft1 # vfmul.s ft5, ft0, ft1
    .insn r 0x33, 0, 67, ft6, ft0, ft1 # vfmul.s ft6, ft0, ft1
    .insn r 0x33, 0, 67, ft7, ft0, ft1 # vfmul.s ft7, ft0, ft1
    li t0, 2
    .insn i 0x0b, 0, x1, t0, 3 # frep.o t0, 4
    # x_r[{0},{1},{2}] = x[{1},{0}*2+{2}]
    # z_r[{0},{1},{2}] = z[{1},{0}*2+{2}]
    # p[{1},{2}] += x_r[{0},{1},{2}] * z_r[{0},{1},{2}]
    .insn r 0x33, 0, 72, ft4, ft0, ft1 # vfmac.s ft4, ft0, ft1
    # x_r[{0},{1},{2}] = x[{1},{0}*2+{2}]
    # z_r[{0},{1},{2}] = z[{1},{0}*2+{2}]
    # p[{1},{2}] += x_r[{0},{1},{2}] * z_r[{0},{1},{2}]
    .insn r 0x33, 0, 72, ft5, ft0, ft1 # vfmac.s ft5, ft0, ft1
    # x_r[{0},{1},{2}] = x[{1},{0}*2+{2}]
    # z_r[{0},{1},{2}] = z[{1},{0}*2+{2}]
    # p[{1},{2}] += x_r[{0},{1},{2}] * z_r[{0},{1},{2}]
    .insn r 0x33, 0, 72, ft6, ft0, ft1 # vfmac.s ft6, ft0, ft1
    # x_r[{0},{1},{2}] = x[{1},{0}*2+{2}]
    # z_r[{0},{1},{2}] = z[{1},{0}*2+{2}]
    # p[{1},{2}] += x_r[{0},{1},{2}] * z_r[{0},{1},{2}]
    .insn r 0x33, 0, 72, ft7, ft0, ft1 # vfmac.s ft7, ft0, ft1
    # s[{0}] = 0
    fmv.s ft8, ft3
    # s[{0}] = 0
    fmv.s ft9, ft3
    # s[{0}] = 0
    fmv.s ft10, ft3
    # s[{0}] = 0
    fmv.s ft3, ft3
    # s[{0}] += p[{0},{1}]
    .insn r 0x33, 0, 71, ft8, ft4, ft8 # vfsum.s ft8, ft4
    # s[{0}] += p[{0},{1}]
    .insn r 0x33, 0, 71, ft9, ft5, ft8 # vfsum.s ft9, ft5
    # s[{0}] += p[{0},{1}]
    .insn r 0x33, 0, 71, ft10, ft6, ft8 # vfsum.s ft10, ft6
    # s[{0}] += p[{0},{1}]
    .insn r 0x33, 0, 71, ft3, ft7, ft8 # vfsum.s ft3, ft7
    # ssr2: y[{0}*2+{1}]
    .insn i 0x2b, 2, x0, a2, 898 # scfgwi a2, 898
    # w[{0},{1}] = s[{0}*2+{1}]
    .insn r 0x33, 0, 88, ft2, ft8, ft9 # vfcpka.s.s ft2, ft8, ft9
    # y[{0}*2+{1}] = w[{0},{1}]
    # w[{0},{1}] = s[{0}*2+{1}]
    .insn r 0x33, 0, 88, ft2, ft10, ft3 # vfcpka.s.s ft2, ft10, ft3
    # y[{0}*2+{1}] = w[{0},{1}]
    li a0, 0
    csrci 0x7c0, 1 # streams off
    .insn i 0x2b, 1, zero, x0, 2 # scfgri zero, 2
.Lpd_kernel_1:
    .insn i 0x2b, 1, t0, x0, 2 # scfgri t0, 2
    bgez t0, .Lpd_kernel_1
    ret
.size pd_kernel, .-pd_kernel

.globl pd_kernel_workspace_bytes
.type pd_kernel_workspace_bytes, @function
pd_kernel_workspace_bytes:
    li a0, 0
    ret
.size pd_kernel_workspace_bytes, .-pd_kernel_workspace_bytes
