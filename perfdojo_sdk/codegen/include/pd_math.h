/* Functions over any float32 type: included once for scalars and once for vectors.
 *
 * Before inclusion:
 *
 *   PD_T, PD_I, PD_D          the type: float, or a vector of floats; int32_t and double, or vectors of as many
 *   PD_F(name)                the name of a function of this header
 *   PD_TO(type, v)            v converted to another of the three types
 *   PD_BITS(v), PD_OF_BITS(i) the bits of a PD_T as a PD_I, and back
 *   PD_CHOOSE(where, a, b)    a where a comparison of two PD_T or of two PD_I holds, else b
 *   PD_AT_LEAST(c, v), PD_AT_MOST(c, v)   the larger (smaller) of a constant and v; NaN where v is NaN
 *   PD_SPLAT(c)               a constant in every lane
 *   PD_SQRT(v)                the square root
 *   PD_SCALE(v, n)            v * 2^n, rounded once; n is whole and in [-252, 254]
 *   PD_ROUNDINGS              defined if the roundings are wanted
 *   PD_LARGE(x, n, r)         puts the reduced argument of pd_large_f32 in place of n and r where |x| >= 2^20
 *
 * At most 2 ulp from the exact value for every input, denormal arguments and results included; infinities and NaN as
 * the C library has them. No lane branches; special values are selected. benchmarks/functions.py measures the errors,
 * tools/fit_polynomials.py makes the polynomials.
 *
 * Where f32 has too few digits (powers, logarithms of sums, arguments far from zero), doubles are used: a vector of
 * doubles has as many lanes, in two registers.
 */

#undef PD_NAN
#define PD_NAN pd_of_bits_f32(0x7fc00000)

/* The magnitude, and r, which is not negative, with the sign of x. */
PD_INLINE PD_T PD_F(size)(PD_T x) { return PD_OF_BITS(PD_BITS(x) & 0x7fffffff); }
PD_INLINE PD_T PD_F(signed)(PD_T r, PD_T x) { return PD_OF_BITS(PD_BITS(r) | (PD_BITS(x) & INT32_MIN)); }

/* To the nearest whole number, ties to even; adding 1.5 * 2^23 leaves no room for a fraction. Below 2^22. */
PD_INLINE PD_T PD_F(nearest)(PD_T x) { return (x + 12582912.0f) - 12582912.0f; }

/* Roundings to whole numbers, which all numbers from 2^23 on are. The C library's are better for scalars. */
#ifdef PD_ROUNDINGS
PD_INLINE PD_T PD_F(round)(PD_T x)
{
    const PD_T a = PD_F(size)(x);
    return PD_CHOOSE(a < 8388608.0f, PD_F(signed)((a + 8388608.0f) - 8388608.0f, x), x);
}

PD_INLINE PD_T PD_F(trunc)(PD_T x)
{
    const PD_T a = PD_F(size)(x), r = PD_F(size)(PD_F(round)(x));
    return PD_CHOOSE(a < 8388608.0f, PD_F(signed)(PD_CHOOSE(a < r, r - 1.0f, r), x), x);
}

PD_INLINE PD_T PD_F(floor)(PD_T x)
{
    const PD_T r = PD_F(round)(x);
    return PD_CHOOSE(x < r, r - 1.0f, r);
}

PD_INLINE PD_T PD_F(ceil)(PD_T x)
{
    const PD_T r = PD_F(round)(x);
    return PD_CHOOSE(r < x, PD_F(signed)(PD_F(size)(r + 1.0f), x), r);
}
#endif

/* exp(r) - 1, |r| < 0.35 */
PD_INLINE PD_T PD_F(exp_rest)(PD_T r)
{
    PD_T p = r * 1.97599147e-4f + 1.3932318e-3f;
    p = p * r + 8.33354797e-3f;
    p = p * r + 4.16664928e-2f;
    p = p * r + 1.66666657e-1f;
    p = p * r + 0.5f;
    return p * (r * r) + r;
}

/* exp(x) = 2^n (1 + q), |q| < 0.42; x in [-150, 150]. The high part of ln 2 has few bits, so that n times it is exact. */
PD_INLINE PD_T PD_F(exp_parts)(PD_T x, PD_T *n)
{
    *n = PD_F(nearest)(x * 1.44269504f);
    return PD_F(exp_rest)((x - *n * 0.693359375f) + *n * 2.12194440e-4f);
}

PD_INLINE PD_T PD_F(exp2)(PD_T x)
{
    x = PD_AT_LEAST(-151.0f, PD_AT_MOST(129.0f, x));
    const PD_T n = PD_F(nearest)(x), r = x - n;
    PD_T p = r * 1.5329264e-4f + 1.33909693e-3f;
    p = p * r + 9.61849932e-3f;
    p = p * r + 5.55035956e-2f;
    p = p * r + 2.40226477e-1f;
    p = p * r + 6.93147182e-1f;
    return PD_SCALE(p * r + 1.0f, n);
}

/* 2^n q + (2^n - 1), of half of everything, as 2^128 is beyond the range. */
PD_INLINE PD_T PD_F(expm1)(PD_T x)
{
    PD_T n;
    const PD_T q = PD_F(exp_parts)(PD_AT_LEAST(-25.0f, PD_AT_MOST(90.0f, x)), &n);
    const PD_T half = PD_OF_BITS((PD_TO(PD_I, n) + 126) << 23);
    const PD_T found = ((half - 0.5f) + half * q) * 2.0f;
    return PD_CHOOSE(PD_F(size)(x) < 1e-8f, x, PD_CHOOSE(n < 128.0f, found, PD_SCALE(1.0f + q, n)));
}

/* 2^(k - 127), where k are the last 9 bits of a sum with 1.5 * 2^23, whose last bit counts ones. */
#define PD_POWER(sum) PD_OF_BITS((PD_BITS(sum) & 0x1ff) << 23)

/* 1 / (1 + 2^n (1 + q)), whose denominator is rounded once: 1 + 2^n is exact, or else the 1 goes to 2^n q first. All of
 * it is taken times 2^-63: then 2^n is in range for every n, and a denormal result is rounded once, too. */
PD_INLINE PD_T PD_F(sigmoid)(PD_T x)
{
    const PD_T z = PD_AT_LEAST(-105.0f, PD_AT_MOST(30.0f, x));
    const PD_T sum = z * -1.44269504f + 12582976.0f, n = sum - 12582976.0f, two = PD_POWER(sum);
    const PD_T q = PD_F(exp_rest)((-z - n * 0.693359375f) + n * 2.12194440e-4f);
    const PD_T large = PD_CHOOSE(n > 20.0f, two, two + 0x1p-63f);
    const PD_T small = PD_CHOOSE(n > 20.0f, PD_SPLAT(0x1p-63f), PD_SPLAT(0.0f));
    return 0x1p-63f / (large + (two * q + small));
}

/* exp(|x|) / 2 */
PD_INLINE PD_T PD_F(half_exp)(PD_T x)
{
    PD_T n;
    const PD_T q = PD_F(exp_parts)(PD_AT_MOST(91.0f, PD_F(size)(x)), &n);
    return PD_SCALE(1.0f + q, n - 1.0f);
}

PD_INLINE PD_T PD_F(cosh)(PD_T x)
{
    const PD_T e = PD_F(half_exp)(x);
    return e + 0.25f / e;
}

PD_INLINE PD_T PD_F(sinh)(PD_T x)
{
    const PD_T e = PD_F(half_exp)(x), z = x * x;
    PD_T p = z * 2.78221319e-6f + 1.98428956e-4f;
    p = p * z + 8.33331048e-3f;
    p = p * z + 1.66666672e-1f;
    return PD_CHOOSE(PD_F(size)(x) < 1.0f, x + x * (z * p), PD_F(signed)(e - 0.25f / e, x));
}

/* An odd polynomial near zero, then m / (m + 2) with m = exp(2 |x|) - 1 = 2^n q + (2^n - 1). With the half of q and
 * twice 2^n, which a sum has whose last bits are n + 128, nothing has to be doubled. */
PD_INLINE PD_T PD_F(tanh)(PD_T x)
{
    const PD_T z = x * x, a = PD_AT_MOST(10.0f, PD_F(size)(x));
    PD_T near = z * -5.0814040e-2f + 1.33192137e-1f;
    near = near * z + -3.33331525e-1f;
    const PD_T sum = a * 2.88539f + 12583040.0f, n = sum - 12583040.0f, twice = PD_POWER(sum);
    const PD_T r = (a - n * 0.3466797f) + n * 0.00010609722f;
    PD_T p = r * 0.012646345f + 0.044583417f;
    p = p * r + 0.13333677f;
    p = p * r + 0.33333194f;
    p = p * r + 0.6666666f;
    p = p * r + 1.0f;
    const PD_T m = twice * (p * (r * r) + r) + (twice * 0.5f - 1.0f);
    return PD_CHOOSE(PD_F(size)(x) < 0.28f, x + x * (z * near), PD_F(signed)(m / (m + 2.0f), x));
}

/* An odd polynomial up to 0.9, then 1 - exp(p(|x|)). */
PD_INLINE PD_T PD_F(erf)(PD_T x)
{
    const PD_T z = x * x, a = PD_AT_MOST(4.0f, PD_F(size)(x));
    PD_T near = z * 7.94310035e-5f + -8.03975272e-4f;
    near = near * z + 5.19175315e-3f;
    near = near * z + -2.685556e-2f;
    near = near * z + 1.12836242e-1f;
    near = near * z + -3.76126289e-1f;
    near = near * z + 1.28379166e-1f;
    PD_T p = a * -2.08233505e-5f + 4.31343971e-4f;
    p = p * a + -4.15606378e-3f;
    p = p * a + 2.50802319e-2f;
    p = p * a + -1.08219959e-1f;
    p = p * a + -6.33401096e-1f;
    p = p * a + -1.12948835f;
    p = p * a + 1.69205174e-4f;
    PD_T n;
    const PD_T q = PD_F(exp_parts)(p, &n), e = PD_OF_BITS((PD_TO(PD_I, n) + 127) << 23);
    return PD_CHOOSE(a < 0.9f, x + x * near, PD_F(signed)((1.0f - e) - e * q, x));
}

/* The result of a logarithm where x is no positive finite number. */
PD_INLINE PD_T PD_F(log_special)(PD_T x, PD_T found)
{
    const PD_T odd = PD_CHOOSE(x == 0.0f, PD_SPLAT(-PD_INF), PD_CHOOSE(x < 0.0f, PD_SPLAT(PD_NAN), x));
    return PD_CHOOSE((x > 0.0f) & (x < PD_INF), found, odd);
}

/* x = 2^n (1 + f), sqrt(1/2) - 1 <= f < sqrt(2) - 1, for a positive number; gives f. */
PD_INLINE PD_T PD_F(log_parts)(PD_T x, PD_T *n)
{
    const PD_I denormal = x < 1.17549435e-38f;
    const PD_I bits = PD_BITS(PD_CHOOSE(denormal, x * 16777216.0f, x)) - 0x3f3504f3;
    *n = PD_TO(PD_T, bits >> 23) - PD_CHOOSE(denormal, PD_SPLAT(24.0f), PD_SPLAT(0.0f));
    return PD_OF_BITS((bits & 0x7fffff) + 0x3f3504f3) - 1.0f;
}

/* (log(1 + f) - f + f^2/2) / f^3 */
PD_INLINE PD_T PD_F(log_rest)(PD_T f)
{
    PD_T p = f * 6.74955621e-2f + -1.16701923e-1f;
    p = p * f + 1.18834704e-1f;
    p = p * f + -1.24062076e-1f;
    p = p * f + 1.42203629e-1f;
    p = p * f + -1.66679904e-1f;
    p = p * f + 2.00020716e-1f;
    p = p * f + -2.50000089e-1f;
    return p * f + 3.33333135e-1f;
}

PD_INLINE PD_T PD_F(log)(PD_T x)
{
    PD_T n;
    const PD_T f = PD_F(log_parts)(x, &n), z = f * f;
    const PD_T low = (f * z) * PD_F(log_rest)(f) + (n * -2.12194440e-4f - z * 0.5f);
    return PD_F(log_special)(x, n * 0.693359375f + (f + low));
}

/* log2(e) in two parts, so that its product with f is exact to more digits than f has. */
PD_INLINE PD_T PD_F(log2)(PD_T x)
{
    PD_T n;
    const PD_T f = PD_F(log_parts)(x, &n);
    PD_T p = f * 9.64254439e-2f + -1.67627931e-1f;
    p = p * f + 1.71560705e-1f;
    p = p * f + -1.79166704e-1f;
    p = p * f + 2.05159456e-1f;
    p = p * f + -2.40451485e-1f;
    p = p * f + 2.88568109e-1f;
    p = p * f + -3.6067456e-1f;
    p = p * f + 4.80898082e-1f;
    p = p * f + -7.21347511e-1f;
    const PD_T low = (f * f) * p + f * 4.4269504e-1f;
    return PD_F(log_special)(x, n + (f + low));
}

/* log(u) and what 1 + x loses when it is rounded to u. */
PD_INLINE PD_T PD_F(log1p)(PD_T x)
{
    const PD_T u = 1.0f + x, more = u - 1.0f, lost = (1.0f - (u - more)) + (x - more);
    PD_T n;
    const PD_T kept = PD_F(log_parts)(u, &n);
    /* Nothing that matters is lost where n is large. */
    const PD_T scale = PD_OF_BITS((127 - PD_TO(PD_I, PD_AT_MOST(100.0f, n))) << 23);
    const PD_T f = kept + lost * scale, z = f * f;
    const PD_T low = (f * z) * PD_F(log_rest)(f) + (n * -2.12194440e-4f - z * 0.5f);
    const PD_T found = PD_F(log_special)(u, n * 0.693359375f + (f + low));
    return PD_CHOOSE(PD_F(size)(x) < 1e-8f, x, found);
}

PD_INLINE PD_T PD_F(rsqrt)(PD_T x) { return 1.0f / PD_SQRT(x); }

/* -- circular functions -------------------------------------------------------------------------- */

/* x = n pi/2 + r, |r| <= pi/4, in double; n times the high part of pi/2 is exact below 2^20. */
PD_INLINE PD_D PD_F(quarters)(PD_T x, PD_I *n)
{
    const PD_D wide = PD_TO(PD_D, x);
    const PD_D turns = (wide * 0.63661977236758138 + 6755399441055744.0) - 6755399441055744.0;
    PD_D r = (wide - turns * 1.5707963267341256) - turns * 6.0771005065061922e-11;
    *n = PD_TO(PD_I, turns);
    PD_LARGE(x, *n, r);
    return r;
}

/* sin(n pi/2 + wide), of which f32 holds r and what is left of it. */
PD_INLINE PD_T PD_F(sine_of)(PD_I n, const PD_D *wide)
{
    const PD_T r = PD_TO(PD_T, *wide), rest = PD_TO(PD_T, *wide - PD_TO(PD_D, r)), z = r * r, half = z * 0.5f;
    PD_T s = z * 2.83279473e-6f + -1.98530761e-4f;
    s = s * z + 8.3333794e-3f;
    s = s * z + -1.66666672e-1f;
    PD_T c = z * 2.44325674e-5f + -1.38873106e-3f;
    c = c * z + 4.16666456e-2f;
    const PD_T sine = r + (r * (z * s) + rest * (1.0f - half));
    const PD_T most = 1.0f - half, cosine = most + (((1.0f - most) - half) + ((z * z) * c - r * rest));
    return PD_OF_BITS(PD_BITS(PD_CHOOSE((n & 1) == 1, cosine, sine)) ^ ((n & 2) << 30));
}

PD_INLINE PD_T PD_F(sin)(PD_T x)
{
    PD_I n;
    const PD_D r = PD_F(quarters)(x, &n);
    return PD_F(sine_of)(n, &r);
}

PD_INLINE PD_T PD_F(cos)(PD_T x)
{
    PD_I n;
    const PD_D r = PD_F(quarters)(x, &n);
    return PD_F(sine_of)(n + 1, &r);
}

PD_INLINE PD_T PD_F(tan)(PD_T x)
{
    PD_I n;
    const PD_D r = PD_F(quarters)(x, &n), z = r * r;
    PD_D p = z * 0.00095058161271985102 + -0.00057153810518208008;
    p = p * z + 0.0023889672671176107;
    p = p * z + 0.0031603322360027274;
    p = p * z + 0.0089835356448037772;
    p = p * z + 0.021849520080167658;
    p = p * z + 0.053970112169900823;
    p = p * z + 0.13333324910606661;
    p = p * z + 0.33333333464132509;
    const PD_T t = PD_TO(PD_T, r + (r * z) * p);
    return PD_CHOOSE((n & 1) == 1, -1.0f / t, t);
}

/* asin(s) where z = s^2 < 0.43 */
PD_INLINE PD_T PD_F(asin_near)(PD_T s, PD_T z)
{
    PD_T p = z * 7.45608956e-2f + -3.7478555e-2f;
    p = p * z + 4.47123721e-2f;
    p = p * z + 2.56416518e-2f;
    p = p * z + 4.51665968e-2f;
    p = p * z + 7.49729797e-2f;
    p = p * z + 1.66667134e-1f;
    return s + s * (z * p);
}

/* Beyond 0.65, pi/2 - 2 asin(sqrt((1 - |x|)/2)): there the second term is no longer of a larger exponent than the
 * result. */
PD_INLINE PD_T PD_F(asin)(PD_T x)
{
    const PD_T a = PD_F(size)(x), half = (1.0f - a) * 0.5f;
    const PD_T near = PD_F(asin_near)(x, x * x), far = PD_F(asin_near)(PD_SQRT(half), half);
    return PD_CHOOSE(a < 0.65f, near, PD_F(signed)(1.57079637f - (far * 2.0f + 4.37113883e-8f), x));
}

PD_INLINE PD_T PD_F(acos)(PD_T x)
{
    const PD_T a = PD_F(size)(x), half = (1.0f - a) * 0.5f;
    const PD_T near = PD_F(asin_near)(x, x * x), far = PD_F(asin_near)(PD_SQRT(half), half) * 2.0f;
    const PD_T beyond = PD_CHOOSE(x < 0.0f, 3.14159274f - (far + 8.74227766e-8f), far);
    return PD_CHOOSE(a < 0.5f, 1.57079637f - (near + 4.37113883e-8f), beyond);
}

PD_INLINE PD_T PD_F(atan)(PD_T x)
{
    const PD_T a = PD_F(size)(x), t = PD_CHOOSE(a > 1.0f, 1.0f / a, a), z = t * t;
    PD_T p = z * -1.78757648e-3f + 1.08874794e-2f;
    p = p * z + -3.11271884e-2f;
    p = p * z + 5.79066873e-2f;
    p = p * z + -8.40048045e-2f;
    p = p * z + 1.09511755e-1f;
    p = p * z + -1.42640516e-1f;
    p = p * z + 1.9998531e-1f;
    p = p * z + -3.33332986e-1f;
    const PD_T near = t + t * (z * p);
    return PD_F(signed)(PD_CHOOSE(a > 1.0f, 1.57079637f - (near + 4.37113883e-8f), near), x);
}

/* -- in double ------------------------------------------------------------------------------------- */

/* log2(v) + k of positive numbers v of the size of `rough`, which is normal. */
PD_INLINE PD_D PD_F(log2_wide)(const PD_D *v, PD_T rough, PD_T k)
{
    const PD_I n = (PD_BITS(rough) - 0x3f3504f3) >> 23, half = n >> 1;
    const PD_T down = PD_OF_BITS((127 - half) << 23), rest = PD_OF_BITS((127 - (n - half)) << 23);
    const PD_D m = *v * PD_TO(PD_D, down) * PD_TO(PD_D, rest), s = (m - 1.0) / (m + 1.0), z = s * s;
    PD_D p = z * 0.24271739283242366 + 0.2614645463141646;
    p = p * z + 0.32061559628868774;
    p = p * z + 0.41219841688512132;
    p = p * z + 0.57707801711228435;
    p = p * z + 0.9617966939248469;
    p = p * z + 2.8853900817779259;
    return p * s + PD_TO(PD_D, PD_TO(PD_T, n) + k);
}

/* |x|^y, of which x is normal after it is multiplied by 2^24 where it is denormal. */
PD_INLINE PD_T PD_F(power)(PD_T a, const PD_D *y)
{
    const PD_I denormal = a < 1.17549435e-38f;
    const PD_T normal = PD_CHOOSE(denormal, a * 16777216.0f, a);
    const PD_T k = PD_CHOOSE(denormal, PD_SPLAT(-24.0f), PD_SPLAT(0.0f));
    const PD_D wide = PD_TO(PD_D, normal), t = *y * PD_F(log2_wide)(&wide, normal, k);
    const PD_T n = PD_F(nearest)(PD_AT_LEAST(-151.0f, PD_AT_MOST(129.0f, PD_TO(PD_T, t))));
    const PD_T r = PD_AT_LEAST(-1.0f, PD_AT_MOST(1.0f, PD_TO(PD_T, t - PD_TO(PD_D, n))));
    PD_T p = r * 1.5329264e-4f + 1.33909693e-3f;
    p = p * r + 9.61849932e-3f;
    p = p * r + 5.55035956e-2f;
    p = p * r + 2.40226477e-1f;
    p = p * r + 6.93147182e-1f;
    return PD_SCALE(p * r + 1.0f, n);
}

PD_INLINE PD_T PD_F(cbrt)(PD_T x)
{
    const PD_T a = PD_F(size)(x);
    const PD_D third = PD_TO(PD_D, PD_SPLAT(0.0f)) + 0.33333333333333333;
    const PD_T found = PD_F(power)(a, &third);
    return PD_CHOOSE((a > 0.0f) & (a < PD_INF), PD_F(signed)(found, x), x);
}

PD_INLINE PD_T PD_F(pow)(PD_T x, PD_T y)
{
    const PD_T a = PD_F(size)(x), none = PD_SPLAT(0.0f), all = PD_SPLAT(PD_INF), b = PD_F(size)(y);
    const PD_D wide = PD_TO(PD_D, y);
    PD_T z = PD_F(power)(a, &wide);
    z = PD_CHOOSE(a == 0.0f, PD_CHOOSE(y < 0.0f, all, none), z);
    z = PD_CHOOSE(a == PD_INF, PD_CHOOSE(y < 0.0f, none, all), z);
    z = PD_CHOOSE((b == PD_INF) & (a == 1.0f), PD_SPLAT(1.0f), z);
    /* From 2^24 on, every number is even. */
    const PD_T small = PD_AT_MOST(16777216.0f, b);
    const PD_T once = PD_TO(PD_T, PD_TO(PD_I, small)), twice = PD_TO(PD_T, PD_TO(PD_I, small * 0.5f)) * 2.0f;
    const PD_I whole = once == small, odd = whole & (twice != small), negative = PD_BITS(x) < 0;
    z = PD_CHOOSE(negative & odd, -z, z);
    z = PD_CHOOSE((x < 0.0f) & (x > -PD_INF) & (whole == 0), PD_SPLAT(PD_NAN), z);
    z = PD_CHOOSE((x != x) | (y != y), x + y, z);
    return PD_CHOOSE((y == 0.0f) | (x == 1.0f), PD_SPLAT(1.0f), z);
}

/* sqrt(w), exact to more than 40 bits, of numbers that f32 holds. */
PD_INLINE PD_D PD_F(sqrt_wide)(const PD_D *w)
{
    const PD_D s = PD_TO(PD_D, PD_SQRT(PD_TO(PD_T, *w)));
    return (s + *w / s) * 0.5;
}

/* Near zero x - x^3/6; beyond 2^13, sqrt(x^2 + 1) is |x|, and a little that no longer matters. */
PD_INLINE PD_T PD_F(asinh)(PD_T x)
{
    const PD_T a = PD_F(size)(x), most = PD_AT_MOST(8192.0f, a);
    const PD_D wide = PD_TO(PD_D, most), more = PD_TO(PD_D, a) - wide;
    const PD_D square = wide * wide + 1.0, above = PD_F(sqrt_wide)(&square);
    const PD_D v = (PD_TO(PD_D, a) + (above + more)) * 0.5;
    const PD_T found = PD_TO(PD_T, PD_F(log2_wide)(&v, PD_TO(PD_T, v), PD_SPLAT(1.0f)) * 0.69314718055994531);
    const PD_T far = PD_CHOOSE(a < PD_INF, PD_F(signed)(found, x), x);
    return PD_CHOOSE(a < 0x1p-11f, x - x * (x * x * 0.166666667f), far);
}

PD_INLINE PD_T PD_F(acosh)(PD_T x)
{
    const PD_T most = PD_AT_MOST(8192.0f, x);
    const PD_D wide = PD_TO(PD_D, most), more = PD_TO(PD_D, x) - wide;
    const PD_D square = wide * wide - 1.0, above = PD_F(sqrt_wide)(&square);
    const PD_D v = (PD_TO(PD_D, x) + (above + more)) * 0.5;
    const PD_T found = PD_TO(PD_T, PD_F(log2_wide)(&v, PD_TO(PD_T, v), PD_SPLAT(1.0f)) * 0.69314718055994531);
    const PD_T inside = PD_CHOOSE(x == 1.0f, PD_SPLAT(0.0f), PD_CHOOSE(x < PD_INF, found, x));
    return PD_CHOOSE(x < 1.0f, PD_SPLAT(PD_NAN), inside);
}

PD_INLINE PD_T PD_F(atanh)(PD_T x)
{
    const PD_T a = PD_F(size)(x);
    const PD_D wide = PD_TO(PD_D, a), v = (1.0 + wide) / (1.0 - wide);
    const PD_T found = PD_TO(PD_T, PD_F(log2_wide)(&v, PD_TO(PD_T, v), PD_SPLAT(0.0f)) * 0.34657359027997265);
    const PD_T edge = PD_CHOOSE(a == 1.0f, PD_SPLAT(PD_INF), PD_SPLAT(PD_NAN));
    const PD_T far = PD_F(signed)(PD_CHOOSE(a < 1.0f, found, edge), x);
    return PD_CHOOSE(a < 0x1p-11f, x + x * (x * x * 0.333333333f), far);
}
