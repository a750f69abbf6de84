/* Conversions between the float dtypes, once both are there. */
static inline num_f64 convert_f32_f64(num_f32 a) { return (num_f64){a.v, a.e, a.f}; }

static inline num_f32 convert_f64_f32(num_f64 a)
{
    double v = (double)a.v, e = (double)a.e;
    e += 0x1p-24 * (fabs(v) + e) + 0x1p-150 + 0x1p-52 * fabs(v);
    float f = (float)a.f;
    if (fabs(v) + e <= FLT_MAX) return (num_f32){v, e, f};
    int certain = !finite__f64(a.v) && a.e <= DBL_MAX;
    return (num_f32){v, certain ? 0 : INFINITY, f};
}
