/* exp over any float32 type: included once for scalars and once for vectors.
 *
 * PD_T is the type, PD_F(name) its function `name` (splat, max_number, min_number, scale). At most
 * 2 ulp from the exact value for every input, denormal results included; NaN, infinities and
 * overflow as IEEE says.
 *
 * exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln(2) / 2. The high part of ln 2 has few
 * bits, so that n times it is exact. The polynomial is the near-minimax one of degree 6.
 */
PD_INLINE PD_T PD_F(exp_any)(PD_T x)
{
    /* Beyond these bounds the result is inf or 0 either way; NaN passes through. */
    x = PD_F(max_number)(-104.0f, PD_F(min_number)(89.0f, x));

    /* Adding 1.5 * 2^23 leaves no room for a fraction, so the sum is rounded to a whole number. */
    const PD_T shift = PD_F(splat)(12582912.0f);
    const PD_T n = (x * PD_F(splat)(1.44269504f) + shift) - shift;
    const PD_T r = (x - n * PD_F(splat)(0.693359375f)) + n * PD_F(splat)(2.12194440e-4f);

    PD_T p = PD_F(splat)(1.38145406e-3f);
    p = p * r + PD_F(splat)(8.36874545e-3f);
    p = p * r + PD_F(splat)(4.16683890e-2f);
    p = p * r + PD_F(splat)(1.66665211e-1f);
    p = p * r + PD_F(splat)(4.99999940e-1f);
    p = p * r + PD_F(splat)(1.0f);
    p = p * r + PD_F(splat)(1.0f);
    return PD_F(scale)(p, n);
}
