// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// kernels.cu: what ../nvcc.sh has nvcc make PTX of: functions.h a thread each, and what threads do together (../nvcc_run.c has the same for the host).
#include "functions.h"
#pragma nv_diag_suppress 550

#define KERNEL(NAME, VALUE)                                                                                            \
    extern "C" __global__ void NAME(const uint32_t *in, uint32_t *out, int n) {                                        \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                                 \
        if (i >= n) return;                                                                                            \
        uint32_t a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];                                                  \
        (void)a, (void)b, (void)c;                                                                                     \
        out[i] = VALUE;                                                                                                \
    }
FUNCTIONS(KERNEL)

// A word a thread in and out; blocks of 256.
extern "C" __global__ void together_shuffles(const uint32_t *in, uint32_t *out, int) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    uint32_t v = in[i];
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
    uint32_t up = __shfl_up_sync(~0u, in[i], 3), down = __shfl_down_sync(~0u, in[i], 5), at = __shfl_sync(~0u, in[i], lane * 7 & 31),
             part = __shfl_xor_sync(~0u, in[i], 2, 8), ballot = __ballot_sync(~0u, in[i] & 4);
    out[i] = v ^ up * 3 ^ down * 5 ^ at * 7 ^ part * 9 ^ ballot ^ (__any_sync(~0u, in[i] > 0xf0000000u) ? 1 : 0);
}

extern "C" __global__ void together_shared(const uint32_t *in, uint32_t *out, int) {
    __shared__ uint32_t s[256];
    __shared__ unsigned long long sums[8];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    s[t] = in[i];
    if (t < 8) sums[t] = 0;
    __syncthreads();
    for (int d = 1; d < 256; d *= 2) { // running sums
        uint32_t v = t >= d ? s[t - d] : 0;
        __syncthreads();
        s[t] += v;
        __syncthreads();
    }
    atomicAdd(&sums[t & 7], (unsigned long long)in[i]);
    __syncthreads();
    out[i] = s[255 - t] ^ (uint32_t)(sums[t >> 5] >> 3);
}

// D = A * B + C for a warp: 16x16 bf16, 16x8 bf16, f32 in 128 + 64 words and 16x8 floats; written as floats' bits.
extern "C" __global__ void together_mma(const uint32_t *in, uint32_t *out, int) {
    int lane = threadIdx.x & 31, g = lane >> 2, c = lane & 3;
    const uint32_t *a = in, *b = in + 128; // row-major A in pairs; B column by column in pairs
    float d[4];
    uint32_t a0 = a[g * 8 + c], a1 = a[(g + 8) * 8 + c], a2 = a[g * 8 + c + 4], a3 = a[(g + 8) * 8 + c + 4], b0 = b[g * 8 + c], b1 = b[g * 8 + c + 4];
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(1.5f));
    if (threadIdx.x >= 32 || blockIdx.x) return;
    for (int k = 0; k < 4; k++) out[(g + 8 * (k >> 1)) * 8 + 2 * c + (k & 1)] = bits_f(d[k]);
}

// ldmatrix, plain and transposed, of a 16x16 matrix of halves
extern "C" __global__ void together_ldmatrix(const uint32_t *in, uint32_t *out, int) {
    __shared__ __align__(16) uint32_t s[128];
    int lane = threadIdx.x & 31;
    if (threadIdx.x < 32)
        for (int k = 0; k < 4; k++) s[4 * lane + k] = in[4 * lane + k];
    __syncthreads();
    if (threadIdx.x >= 32 || blockIdx.x) return;
    uint32_t r[4], at = (uint32_t)__cvta_generic_to_shared(&s[(lane & 15) * 8 + (lane >> 4) * 4]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
    for (int k = 0; k < 4; k++) out[8 * lane + k] = r[k];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
    for (int k = 0; k < 4; k++) out[8 * lane + 4 + k] = r[k];
}

// Rounding to halves and back, two at a time too
extern "C" __global__ void together_halves(const uint32_t *in, uint32_t *out, int) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = as_f(in[i]), y = near_f(in[i]);
    unsigned short h, b;
    uint32_t both;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(y));
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(x));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(x), "f"(y));
    float back;
    asm("cvt.f32.f16 %0, %1;" : "=f"(back) : "h"(h));
    out[i] = (h | (uint32_t)b << 16) ^ both ^ bits_f(back) * 3;
}
