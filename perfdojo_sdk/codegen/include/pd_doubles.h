/* Functions of vectors of doubles: included by pd_vectors.h, which has the types and the selections.
 *
 * At most 2 ulp from the exact value for every input, denormal arguments and results included; infinities and NaN as
 * the C library has them. No lane branches; special values are selected. Only arguments of 2^20 and more of sin and cos
 * leave the vector. benchmarks/functions.py measures the errors, tools/fit_polynomials.py makes the polynomials.
 *
 * Products and sums may be contracted or not: what has to be exact is exact either way.
 */
#ifndef PD_DOUBLES_H
#define PD_DOUBLES_H

typedef PD_TYPE(f64, PD_V8) pd_wide;
typedef PD_TYPE(i64, PD_V8) pd_whole;
typedef PD_TYPE(u64, PD_V8) pd_counts;

#define PD_WIDE(c) PD_OF(splat, f64, PD_V8)(c)
#define PD_WIDE_NAN PD_WIDE(PD_INF - PD_INF)

PD_INLINE pd_wide pd_choose_wide(pd_whole where, pd_wide a, pd_wide b) { return PD_OF(select, f64, PD_V8)(where, a, b); }

/* The magnitude, and r, which is not negative, with the sign of x. */
PD_INLINE pd_wide pd_size_wide(pd_wide x) { return (pd_wide)((pd_whole)x & INT64_MAX); }
PD_INLINE pd_wide pd_signed_wide(pd_wide r, pd_wide x) { return (pd_wide)((pd_whole)r | ((pd_whole)x & INT64_MIN)); }

/* NaN where x is NaN. */
PD_INLINE pd_wide pd_within_wide(double low, double high, pd_wide x)
{
    x = pd_choose_wide(x < low, PD_WIDE(low), x);
    return pd_choose_wide(x > high, PD_WIDE(high), x);
}

/* Whole numbers below 2^51 in size, which 1.5 * 2^52 makes the last bits of a double: the nearest to x, ties to even,
 * and as integers, and back. */
#define PD_MIDDLE 6755399441055744.0
PD_INLINE pd_wide pd_nearest_wide(pd_wide x) { return (x + PD_MIDDLE) - PD_MIDDLE; }
PD_INLINE pd_whole pd_to_whole(pd_wide n) { return (pd_whole)(n + PD_MIDDLE) - (pd_whole)PD_WIDE(PD_MIDDLE); }
PD_INLINE pd_wide pd_from_whole(pd_whole n) { return (pd_wide)(n + (pd_whole)PD_WIDE(PD_MIDDLE)) - PD_MIDDLE; }

/* 2^n for whole n in [-1022, 1023]. */
PD_INLINE pd_wide pd_power_of_two_wide(pd_whole n) { return (pd_wide)((n + 1023) << 52); }

/* v * 2^n, rounded once; n is whole and in [-2044, 2046]. */
PD_INLINE pd_wide pd_scale_wide(pd_wide v, pd_wide n)
{
    const pd_whole whole = pd_to_whole(n), half = (pd_whole)((pd_counts)(whole + 2048) >> 1) - 1024;
    return v * pd_power_of_two_wide(half) * pd_power_of_two_wide(whole - half);
}

/* a + b, and what it lost. */
PD_INLINE pd_wide pd_sum_wide(pd_wide a, pd_wide b, pd_wide *lost)
{
    const pd_wide sum = a + b, other = sum - a;
    *lost = (a - (sum - other)) + (b - other);
    return sum;
}

/* a * b and the rest, off by 2^-78 of it. The product of the upper halves is exact. (The usual way, which subtracts a * b
 * rounded, does not survive that a compiler makes one instruction of that product and the subtraction.) */
PD_INLINE pd_wide pd_product_wide(pd_wide a, pd_wide b, pd_wide *lost)
{
    const pd_wide high = (pd_wide)((pd_whole)a & ~INT64_C(0x7ffffff)), low = a - high;
    const pd_wide top = (pd_wide)((pd_whole)b & ~INT64_C(0x7ffffff)), rest = b - top;
    return pd_sum_wide(high * top, high * rest + low * b, lost);
}

/* exp(x) = 2^n (1 + q), |q| < 0.42, and what q lost; x in [-1500, 1500]. The high part of ln 2 has few bits, so that n
 * times it is exact. */
PD_INLINE pd_wide pd_exp_in_two_wide(pd_wide x, pd_wide *n, pd_wide *lost)
{
    *n = pd_nearest_wide(x * 1.4426950408889634);
    const pd_wide r = (x - *n * 0.69314718055920821) - *n * 7.3710025651677989e-13;
    pd_wide p = r * 2.0914679466387212e-09 + 2.5105206375835307e-08;
    p = p * r + 2.7557273661106338e-07;
    p = p * r + 2.755725542574192e-06;
    p = p * r + 2.480158732553359e-05;
    p = p * r + 0.00019841269874800496;
    p = p * r + 0.0013888888888883752;
    p = p * r + 0.0083333333333261411;
    p = p * r + 0.041666666666666671;
    p = p * r + 0.16666666666666671;
    p = p * r + 0.5;
    const pd_wide rest = p * (r * r), q = rest + r;
    *lost = (r - q) + rest;
    return q;
}

PD_INLINE pd_wide pd_exp_parts_wide(pd_wide x, pd_wide *n)
{
    pd_wide lost;
    return pd_exp_in_two_wide(x, n, &lost);
}

PD_INLINE pd_wide pd_exp_wide(pd_wide x)
{
    pd_wide n;
    const pd_wide q = pd_exp_parts_wide(pd_within_wide(-746.0, 710.0, x), &n);
    return pd_scale_wide(1.0 + q, n);
}

/* 2^r of |r| <= 1/2 */
PD_INLINE pd_wide pd_exp2_near_wide(pd_wide r)
{
    pd_wide p = r * 2.5729324177566046e-11 + 4.4558179083772271e-10;
    p = p * r + 7.0548973041553845e-09;
    p = p * r + 1.0178057087733709e-07;
    p = p * r + 1.3215486808705563e-06;
    p = p * r + 1.5252733841556773e-05;
    p = p * r + 0.00015403530393370734;
    p = p * r + 0.0013333558146406471;
    p = p * r + 0.0096181291076284803;
    p = p * r + 0.055504108664821625;
    p = p * r + 0.24022650695910072;
    p = p * r + 0.69314718055994529;
    return p * r + 1.0;
}

PD_INLINE pd_wide pd_exp2_wide(pd_wide x)
{
    x = pd_within_wide(-1080.0, 1025.0, x);
    const pd_wide n = pd_nearest_wide(x);
    return pd_scale_wide(pd_exp2_near_wide(x - n), n);
}

/* 2^n q + (2^n - 1) with n > -64, half of it as 2^1024 is beyond the range. */
PD_INLINE pd_wide pd_expm1_wide(pd_wide x)
{
    pd_wide n, lost;
    const pd_wide q = pd_exp_in_two_wide(pd_within_wide(-40.0, 710.0, x), &n, &lost);
    const pd_wide half = pd_power_of_two_wide(pd_to_whole(n) - 1), most = half - 0.5, more = half * q, sum = most + more;
    const pd_wide found = (sum + (((most - sum) + more) + half * lost)) * 2.0;
    return pd_choose_wide(pd_size_wide(x) < 1e-17, x, found);
}

/* 1 / (1 + 2^n (1 + q)), whose denominator is rounded once, as in pd_math.h. */
PD_INLINE pd_wide pd_sigmoid_wide(pd_wide x)
{
    pd_wide n;
    const pd_wide q = pd_exp_parts_wide(pd_within_wide(-60.0, 746.0, -x), &n);
    const pd_wide most = pd_choose_wide(n > 1000.0, PD_WIDE(1000.0), n);
    const pd_wide two = pd_power_of_two_wide(pd_to_whole(most)), rest = pd_power_of_two_wide(pd_to_whole(most - n));
    const pd_whole far = n > 50.0;
    const pd_wide large = pd_choose_wide(far, two, 1.0 + two), small = pd_choose_wide(far, PD_WIDE(1.0), PD_WIDE(0.0));
    return 1.0 / (large + (two * q + small)) * rest;
}

/* e / (e + 2) where e = exp(2 |x|) - 1, of which both have two parts. */
PD_INLINE pd_wide pd_tanh_wide(pd_wide x)
{
    pd_wide n, lost, low;
    const pd_wide a = pd_size_wide(x), q = pd_exp_in_two_wide(pd_choose_wide(a > 20.0, PD_WIDE(40.0), a * 2.0), &n, &lost);
    const pd_wide two = pd_power_of_two_wide(pd_to_whole(n)), most = two - 1.0, more = two * q, e = most + more;
    const pd_wide rest = ((most - e) + more) + two * lost, below = e + 2.0, over = 1.0 / below, t = e * over;
    const pd_wide back = pd_product_wide(t, below, &low);
    const pd_wide left = (((e - back) - low) + rest) - t * ((e - (below - 2.0)) + rest);
    return pd_signed_wide(pd_choose_wide(a < 1e-9, a, t + left * over), x);
}

/* An odd polynomial up to 1, then 1 - exp(-x^2) p((a - 2)/(a + 3)). */
PD_INLINE pd_wide pd_erf_wide(pd_wide x)
{
    const pd_wide size = pd_size_wide(x), a = pd_choose_wide(size > 6.0, PD_WIDE(6.0), size), z = a * a;
    pd_wide near = z * -4.2309458242953377e-12 + 8.7090451290531062e-11;
    near = near * z + -1.216456005728345e-09;
    near = near * z + 1.4792401209404813e-08;
    near = near * z + -1.6364642158167616e-07;
    near = near * z + 1.6462045441468418e-06;
    near = near * z + -1.4925647567519332e-05;
    near = near * z + 0.00012055332902888736;
    near = near * z + -0.00085483270219348297;
    near = near * z + 0.0052239776254232985;
    near = near * z + -0.02686617064512984;
    near = near * z + 0.11283791670955121;
    near = near * z + -0.37612638903183754;
    near = near * z + 0.12837916709551259;
    const pd_wide t = (a - 2.0) / (a + 3.0);
    pd_wide p = t * 1.6436596899281799e-05 + -1.670088037114217e-05;
    p = p * t + -7.6763146055813328e-05;
    p = p * t + 6.6544461557316677e-05;
    p = p * t + 0.00042480612446440142;
    p = p * t + -0.00049300413619811378;
    p = p * t + -0.0023785673814526141;
    p = p * t + 0.0059556944006294455;
    p = p * t + 0.0077697886525487881;
    p = p * t + -0.071289890142619786;
    p = p * t + 0.20394656030835803;
    p = p * t + -0.37642439962744456;
    p = p * t + 0.51108650582071313;
    p = p * t + -0.53398230926744805;
    p = p * t + 0.25539567631050575;
    pd_wide n;
    const pd_wide q = pd_exp_parts_wide(-z, &n), e = pd_power_of_two_wide(pd_to_whole(n)) * (1.0 + q);
    return pd_choose_wide(size < 1.0, x + x * near, pd_signed_wide(1.0 - e * p, x));
}

/* -- logarithms ------------------------------------------------------------------------------------ */

/* The result of a logarithm where x is no positive finite number. */
PD_INLINE pd_wide pd_log_special_wide(pd_wide x, pd_wide found)
{
    const pd_wide odd = pd_choose_wide(x == 0.0, PD_WIDE(-PD_INF), pd_choose_wide(x < 0.0, PD_WIDE_NAN, x));
    return pd_choose_wide((x > 0.0) & (x < PD_INF), found, odd);
}

/* x = 2^n m, sqrt(1/2) <= m < sqrt(2), for a positive number; gives m. */
PD_INLINE pd_wide pd_log_parts_wide(pd_wide x, pd_wide *n)
{
    const pd_whole denormal = x < 2.2250738585072014e-308, root = (pd_whole)PD_WIDE(0.70710678118654757);
    const pd_whole bits = (pd_whole)pd_choose_wide(denormal, x * 18014398509481984.0, x) - root;
    *n = pd_from_whole((pd_whole)((pd_counts)(bits + (INT64_C(1023) << 52)) >> 52) - 1023);
    *n -= pd_choose_wide(denormal, PD_WIDE(54.0), PD_WIDE(0.0));
    return (pd_wide)((bits & INT64_C(0xfffffffffffff)) + root);
}

/* s and r, so that log(1 + f) = f - (f^2/2 - s (f^2/2 + r)). */
PD_INLINE pd_wide pd_log_rest_wide(pd_wide f, pd_wide *s)
{
    *s = f / (f + 2.0);
    const pd_wide z = *s * *s;
    pd_wide p = z * 0.1461644970086631 + 0.15331721599275916;
    p = p * z + 0.18182889125300233;
    p = p * z + 0.22222211134794551;
    p = p * z + 0.28571428625975487;
    p = p * z + 0.39999999999899505;
    p = p * z + 0.66666666666666696;
    return p * z;
}

PD_INLINE pd_wide pd_log_wide(pd_wide x)
{
    pd_wide n, s;
    const pd_wide f = pd_log_parts_wide(x, &n) - 1.0, half = f * f * 0.5, r = pd_log_rest_wide(f, &s);
    const pd_wide low = s * (half + r) + n * 7.3710025651677989e-13;
    return pd_log_special_wide(x, n * 0.69314718055920821 - ((half - low) - f));
}

/* log2(e) in two parts, of which the first has as many bits as make its product with the first part of log(1 + f)
 * exact. */
PD_INLINE pd_wide pd_log2_wide(pd_wide x)
{
    pd_wide n, s;
    const pd_wide f = pd_log_parts_wide(x, &n) - 1.0, half = f * f * 0.5, r = pd_log_rest_wide(f, &s);
    const pd_wide high = (pd_wide)((pd_whole)(f - half) & ~INT64_C(0xffffffff));
    const pd_wide low = ((f - high) - half) + s * (half + r);
    const pd_wide first = high * 1.4426950407214463, rest = (low + high) * 1.6751713164886512e-10 + low * 1.4426950407214463, sum = n + first;
    return pd_log_special_wide(x, sum + (((n - sum) + first) + rest));
}

/* log(u) and what 1 + x loses when it is rounded to u. */
PD_INLINE pd_wide pd_log1p_wide(pd_wide x)
{
    pd_wide lost, n, s;
    const pd_wide u = pd_sum_wide(PD_WIDE(1.0), x, &lost), f = pd_log_parts_wide(u, &n) - 1.0;
    const pd_wide half = f * f * 0.5, r = pd_log_rest_wide(f, &s), more = pd_choose_wide(n > 60.0, PD_WIDE(0.0), lost / u);
    const pd_wide low = s * (half + r) + (n * 7.3710025651677989e-13 + more);
    const pd_wide found = pd_log_special_wide(u, n * 0.69314718055920821 - ((half - low) - f));
    return pd_choose_wide(pd_size_wide(x) < 1e-17, x, found);
}

/* -- circular functions ------------------------------------------------------------------------------ */

/* x = n pi/2 + r + rest, |r| <= pi/4; n times each of the first two parts of pi/2 is exact below 2^20. */
PD_INLINE pd_wide pd_quarters_wide(pd_wide x, pd_whole *n, pd_wide *rest)
{
    const pd_wide turns = pd_nearest_wide(x * 0.63661977236758138), near = x - turns * 1.5707963267341256;
    pd_wide lost, more;
    *n = pd_to_whole(turns);
    const pd_wide r = pd_sum_wide(near, turns * -6.077100506303966e-11, &lost);
    const pd_wide sum = pd_sum_wide(r, lost - turns * 2.0222662487959506e-21, &more);
    *rest = more;
    return sum;
}

/* sin(n pi/2 + r + rest) */
PD_INLINE pd_wide pd_sine_of_wide(pd_whole n, pd_wide r, pd_wide rest)
{
    const pd_wide z = r * r, half = z * 0.5;
    pd_wide s = z * -7.5866971175535304e-13 + 1.6058531618983544e-10;
    s = s * z + -2.5052106232447561e-08;
    s = s * z + 2.7557319219339167e-06;
    s = s * z + -0.00019841269841265065;
    s = s * z + 0.0083333333333333315;
    s = s * z + -0.16666666666666666;
    pd_wide c = z * 4.7458719019580106e-14 + -1.1470460887608513e-11;
    c = c * z + 2.0876755791080414e-09;
    c = c * z + -2.7557319221402824e-07;
    c = c * z + 2.4801587301584645e-05;
    c = c * z + -0.0013888888888888887;
    c = c * z + 0.041666666666666664;
    const pd_wide sine = r + (r * (z * s) + rest * (1.0 - half));
    const pd_wide most = 1.0 - half, cosine = most + (((1.0 - most) - half) + ((z * z) * c - r * rest));
    return (pd_wide)((pd_whole)pd_choose_wide((n & 1) == 1, cosine, sine) ^ ((n & 2) << 62));
}

PD_INLINE pd_wide pd_sin_wide(pd_wide x)
{
    pd_whole n;
    pd_wide rest;
    const pd_wide r = pd_quarters_wide(x, &n, &rest);
    return pd_choose_wide(pd_size_wide(x) < 1e-9, x, pd_sine_of_wide(n, r, rest));
}

PD_INLINE pd_wide pd_cos_wide(pd_wide x)
{
    pd_whole n;
    pd_wide rest;
    const pd_wide r = pd_quarters_wide(x, &n, &rest);
    return pd_sine_of_wide(n + 1, r, rest);
}

/* -- powers ------------------------------------------------------------------------------------------ */

/* log2(x) of a positive number, as a sum of two: off by some 2^-64 of it. With s = (m - 1)/(m + 1) it is
 * n + 2/ln(2) (s + s z/3 + s z^2 p(z)), z = s^2, of which all but the last term are in two parts. */
PD_INLINE pd_wide pd_log2_in_two_wide(pd_wide x, pd_wide *rest)
{
    pd_wide n, lost, low, more;
    const pd_wide m = pd_log_parts_wide(x, &n), f = m - 1.0, g = m + 1.0, g_low = m - (g - 1.0), over = 1.0 / g;
    const pd_wide s = f * over, back = pd_product_wide(s, g, &lost), s_low = (((f - back) - lost) - s * g_low) * over;
    const pd_wide z = pd_product_wide(s, s, &low), z_low = low + s * s_low * 2.0;
    pd_wide p = z * 0.058615255214856547 + 0.058531242697500811;
    p = p * z + 0.066674021191392249;
    p = p * z + 0.076922974854472401;
    p = p * z + 0.09090909167657206;
    p = p * z + 0.11111111110828116;
    p = p * z + 0.14285714285714682;
    p = p * z + 0.20000000000000001;
    const pd_wide third = pd_product_wide(z, PD_WIDE(0.33333333333333331), &low);
    const pd_wide all = pd_sum_wide(third, (low + z_low * 0.33333333333333331 + z * 1.8503717077085941e-17) + z * z * p, &more);
    const pd_wide times = pd_product_wide(s, all, &low);
    const pd_wide log = pd_sum_wide(s, times, &lost), log_low = lost + ((low + s * more) + (s_low + s_low * all));
    const pd_wide found = pd_product_wide(log, PD_WIDE(2.8853900817779268), &low);
    const pd_wide found_low = low + (log * 4.0710547481862066e-17 + log_low * 2.8853900817779268);
    const pd_wide sum = pd_sum_wide(n, found, &lost);
    *rest = lost + found_low;
    return sum;
}

PD_INLINE pd_wide pd_pow_wide(pd_wide x, pd_wide y)
{
    const pd_wide a = pd_size_wide(x), b = pd_size_wide(y), none = PD_WIDE(0.0), all = PD_WIDE(PD_INF);
    pd_wide rest, lost;
    const pd_wide e = pd_log2_in_two_wide(a, &rest), times = pd_within_wide(-0x1p70, 0x1p70, y);
    const pd_wide t = pd_product_wide(times, e, &lost), high = pd_within_wide(-1100.0, 1100.0, t);
    const pd_wide n = pd_nearest_wide(high), low = pd_choose_wide(high == t, lost + times * rest, none);
    pd_wide z = pd_scale_wide(pd_exp2_near_wide((high - n) + low), n);
    z = pd_choose_wide(a == 0.0, pd_choose_wide(y < 0.0, all, none), z);
    z = pd_choose_wide(a == PD_INF, pd_choose_wide(y < 0.0, none, all), z);
    /* From 2^52 on, every number is whole, from 2^53 on, even. */
    const pd_wide once = (b + 0x1p52) - 0x1p52, half = b * 0.5, twice = (half + 0x1p52) - 0x1p52;
    const pd_whole whole = (b >= 0x1p52) | (once == b), odd = whole & (b < 0x1p53) & (twice != half);
    z = pd_choose_wide(((pd_whole)x < 0) & odd, -z, z);
    z = pd_choose_wide((x < 0.0) & (x > -PD_INF) & ~whole, PD_WIDE_NAN, z);
    z = pd_choose_wide((x != x) | (y != y), x + y, z);
    return pd_choose_wide((y == 0.0) | (x == 1.0) | ((x == -1.0) & (b == PD_INF)), PD_WIDE(1.0), z);
}

#define PD_WIDE_OF_ONE(name) \
    PD_INLINE pd_wide PD_OF(name, f64, PD_V8)(pd_wide x) { return pd_##name##_wide(x); }
PD_WIDE_OF_ONE(exp) PD_WIDE_OF_ONE(exp2) PD_WIDE_OF_ONE(expm1) PD_WIDE_OF_ONE(sigmoid) PD_WIDE_OF_ONE(tanh)
PD_WIDE_OF_ONE(erf) PD_WIDE_OF_ONE(log) PD_WIDE_OF_ONE(log2) PD_WIDE_OF_ONE(log1p)
PD_INLINE pd_wide PD_OF(pow, f64, PD_V8)(pd_wide x, pd_wide y) { return pd_pow_wide(x, y); }

/* If any argument is so far from zero that it takes more digits of pi to reduce it, or NaN, all lanes are computed one
 * by one. */
#define PD_WIDE_OF_ONE_NEAR(name) \
    __attribute__((noinline, unused)) static pd_wide pd_##name##_far_wide(pd_wide x) \
    { \
        for (int lane = 0; lane < PD_V8; lane++) \
            x[lane] = pd_##name##_f64(x[lane]); \
        return x; \
    } \
    PD_INLINE pd_wide PD_OF(name, f64, PD_V8)(pd_wide x) \
    { \
        if (__builtin_expect(!PD_OF(lowest, u64, PD_V8)((pd_counts)(pd_size_wide(x) < 1048576.0)), 0)) \
            return pd_##name##_far_wide(x); \
        return pd_##name##_wide(x); \
    }
PD_WIDE_OF_ONE_NEAR(sin) PD_WIDE_OF_ONE_NEAR(cos)

#endif
