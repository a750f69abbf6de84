/* Conversions between the float dtypes, once both are there. */
static inline num_f64 convert_f32_f64(num_f32 a) { return (num_f64){a.v, a.f}; }
static inline num_f32 convert_f64_f32(num_f64 a) { return (num_f32){(double)a.v, (float)a.f}; }
