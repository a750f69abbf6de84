/* Functions of vectors of doubles: included by pd_vectors.h, which has the types and the selections.
 *
 * At most 2 ulp from the exact value for every input, denormal arguments and results included; infinities and NaN as
 * the C library has them. No lane branches; special values are selected. Only arguments of 2^20 and more of sin, cos and tan
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

#ifdef PD_OWN_ROOT
PD_INLINE pd_wide pd_root_wide(pd_wide x) { return (pd_wide)PD_OWN_ROOT(x); }
#else
PD_INLINE pd_wide pd_root_wide(pd_wide x) { return PD_OF(sqrt, f64, PD_V8)(x); }
#endif

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

/* exp(a) / 2, a >= 0: e^710 is beyond the range, its half is not. */
PD_INLINE pd_wide pd_half_exp_wide(pd_wide a)
{
    pd_wide n;
    const pd_wide q = pd_exp_parts_wide(pd_choose_wide(a > 712.0, PD_WIDE(712.0), a), &n);
    return pd_scale_wide(1.0 + q, n - 1.0);
}

PD_INLINE pd_wide pd_cosh_wide(pd_wide x)
{
    const pd_wide half = pd_half_exp_wide(pd_size_wide(x));
    return half + 0.25 / half;
}

/* (e + e / (e + 1)) / 2 where e = exp(|x|) - 1, in two parts; beyond 22, what exp(-|x|) adds is less than a quarter of an ulp. */
PD_INLINE pd_wide pd_sinh_wide(pd_wide x)
{
    pd_wide n, lost;
    const pd_wide a = pd_size_wide(x), q = pd_exp_in_two_wide(pd_choose_wide(a > 22.0, PD_WIDE(22.0), a), &n, &lost);
    const pd_wide two = pd_power_of_two_wide(pd_to_whole(n)), most = two - 1.0, more = two * q, e = most + more;
    const pd_wide rest = ((most - e) + more) + two * lost, twice = e + (e / (e + 1.0) + rest);
    return pd_signed_wide(pd_choose_wide(a > 22.0, pd_half_exp_wide(a), twice * 0.5), x);
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

/* log(2^more (u + low)), for a low that is lost in u. */
PD_INLINE pd_wide pd_log_of_two_wide(pd_wide u, pd_wide low, pd_wide more)
{
    pd_wide n, s;
    const pd_wide f = pd_log_parts_wide(u, &n) - 1.0, half = f * f * 0.5, r = pd_log_rest_wide(f, &s);
    const pd_wide rest = pd_choose_wide(n > 60.0, PD_WIDE(0.0), low / u), turns = n + more;
    const pd_wide small = s * (half + r) + (turns * 7.3710025651677989e-13 + rest);
    return pd_log_special_wide(u, turns * 0.69314718055920821 - ((half - small) - f));
}

PD_INLINE pd_wide pd_log1p_wide(pd_wide x)
{
    pd_wide lost;
    const pd_wide u = pd_sum_wide(PD_WIDE(1.0), x, &lost);
    return pd_choose_wide(pd_size_wide(x) < 1e-17, x, pd_log_of_two_wide(u, lost, PD_WIDE(0.0)));
}

/* -- inverse hyperbolic functions: logarithms of sums of two ------------------------------------------ */

/* sqrt(q + low), and what it lost; q is positive. */
PD_INLINE pd_wide pd_root_of_two_wide(pd_wide q, pd_wide low, pd_wide *lost)
{
    pd_wide rest;
    const pd_wide s = pd_root_wide(q), back = pd_product_wide(s, s, &rest);
    *lost = (((q - back) - rest) + low) / (s * 2.0);
    return s;
}

/* log(a + sqrt(a^2 + 1)) of the size; a - a^3/6 below 2^-13, and log(2 a) from 2^28 on. */
PD_INLINE pd_wide pd_asinh_wide(pd_wide x)
{
    pd_wide square_low, sum_low, root_low, low;
    const pd_wide a = pd_size_wide(x);
    const pd_whole far = a >= 0x1p28;
    const pd_wide b = pd_choose_wide(far, PD_WIDE(1.0), a), square = pd_product_wide(b, b, &square_low);
    const pd_wide sum = pd_sum_wide(PD_WIDE(1.0), square, &sum_low);
    const pd_wide root = pd_root_of_two_wide(sum, sum_low + square_low, &root_low), u = pd_sum_wide(root, b, &low);
    const pd_wide none = PD_WIDE(0.0), rest = pd_choose_wide(far, none, low + root_low);
    const pd_wide found = pd_log_of_two_wide(pd_choose_wide(far, a, u), rest, pd_choose_wide(far, PD_WIDE(1.0), none));
    return pd_signed_wide(pd_choose_wide(a < 0x1p-13, a - a * (a * a) * 0.16666666666666666, found), x);
}

/* log(x + sqrt((x - 1)(x + 1))), and log(2 x) from 2^28 on. */
PD_INLINE pd_wide pd_acosh_wide(pd_wide x)
{
    pd_wide less_low, more_low, product_low, root_low, low;
    const pd_whole far = x >= 0x1p28;
    const pd_wide b = pd_choose_wide(far, PD_WIDE(2.0), x);
    const pd_wide less = pd_sum_wide(b, PD_WIDE(-1.0), &less_low), more = pd_sum_wide(b, PD_WIDE(1.0), &more_low);
    const pd_wide product = pd_product_wide(less, more, &product_low);
    const pd_wide rest = product_low + (less * more_low + less_low * more);
    const pd_wide root = pd_root_of_two_wide(product, rest, &root_low), u = pd_sum_wide(b, root, &low);
    const pd_wide none = PD_WIDE(0.0), left = pd_choose_wide(far, none, low + root_low);
    const pd_wide found = pd_log_of_two_wide(pd_choose_wide(far, x, u), left, pd_choose_wide(far, PD_WIDE(1.0), none));
    return pd_choose_wide(x < 1.0, PD_WIDE_NAN, pd_choose_wide(x == 1.0, none, found));
}

/* log((1 + a)/(1 - a))/2 of the size; below 3 - sqrt(8), the polynomial of logarithms. */
PD_INLINE pd_wide pd_atanh_wide(pd_wide x)
{
    pd_wide over_low, below_low, low, s;
    const pd_wide a = pd_size_wide(x), over = pd_sum_wide(PD_WIDE(1.0), a, &over_low);
    const pd_wide below = pd_sum_wide(PD_WIDE(1.0), -a, &below_low), u = over / below;
    const pd_wide back = pd_product_wide(u, below, &low);
    const pd_wide rest = ((((over - back) - low) + over_low) - u * below_low) / below;
    const pd_wide far = pd_log_of_two_wide(u, rest, PD_WIDE(0.0)) * 0.5;
    const pd_wide small = pd_choose_wide(a < 0.17, a, PD_WIDE(0.0)), f = small * 2.0 / (1.0 - small);
    const pd_wide r = pd_log_rest_wide(f, &s), near = a + small * r * 0.5;
    const pd_wide found = pd_choose_wide(a < 0.17, near, far);
    return pd_signed_wide(pd_choose_wide(a == 1.0, PD_WIDE(PD_INF), found), x);
}

PD_INLINE pd_wide pd_rsqrt_wide(pd_wide x) { return 1.0 / pd_root_wide(x); }

/* 2^k y, where |x| = 2^3k m: two steps of Halley's from a polynomial, and what y^3 lacks of m. */
PD_INLINE pd_wide pd_cbrt_wide(pd_wide x)
{
    pd_wide n, low, lost;
    const pd_wide a = pd_size_wide(x), part = pd_log_parts_wide(a, &n), k = pd_nearest_wide(n * 0.33333333333333331);
    const pd_wide m = part * pd_power_of_two_wide(pd_to_whole(n - k * 3.0));
    pd_wide y = m * -0.0195531 + 0.153363;
    y = y * m + -0.474022;
    y = y * m + 0.898546;
    y = y * m + 0.443506;
    for (int step = 0; step < 2; step++) {
        const pd_wide cube = y * y * y;
        y = y * ((cube + m * 2.0) / (cube * 2.0 + m));
    }
    const pd_wide square = pd_product_wide(y, y, &low), cube = pd_product_wide(square, y, &lost);
    const pd_wide found = pd_scale_wide(y + ((m - cube) - (lost + low * y)) / (square * 3.0), k);
    return pd_signed_wide(pd_choose_wide((a > 0.0) & (a < PD_INF), found, a), x);
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

/* sin(r + rest) and cos(r + rest), each as a sum of two that is not rounded yet. */
PD_INLINE void pd_circle_wide(pd_wide r, pd_wide rest, pd_wide *sine, pd_wide *cosine, pd_wide *most)
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
    *sine = r * (z * s) + rest * (1.0 - half);
    *most = 1.0 - half;
    *cosine = ((1.0 - *most) - half) + ((z * z) * c - r * rest);
}

/* sin(n pi/2 + r + rest) */
PD_INLINE pd_wide pd_sine_of_wide(pd_whole n, pd_wide r, pd_wide rest)
{
    pd_wide sine, cosine, most;
    pd_circle_wide(r, rest, &sine, &cosine, &most);
    return (pd_wide)((pd_whole)pd_choose_wide((n & 1) == 1, most + cosine, r + sine) ^ ((n & 2) << 62));
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

/* sin / cos, or -cos / sin, of which both have two parts. */
PD_INLINE pd_wide pd_tan_wide(pd_wide x)
{
    pd_whole n;
    pd_wide rest, sine, cosine, most, low;
    const pd_wide r = pd_quarters_wide(x, &n, &rest);
    pd_circle_wide(r, rest, &sine, &cosine, &most);
    const pd_whole odd = (n & 1) == 1;
    const pd_wide s = r + sine, c = most + cosine, s_low = (r - s) + sine, c_low = (most - c) + cosine;
    const pd_wide over = pd_choose_wide(odd, -c, s), over_low = pd_choose_wide(odd, -c_low, s_low);
    const pd_wide below = pd_choose_wide(odd, s, c), below_low = pd_choose_wide(odd, s_low, c_low);
    const pd_wide t = over / below, back = pd_product_wide(t, below, &low);
    const pd_wide found = t + ((((over - back) - low) + over_low) - t * below_low) / below;
    return pd_choose_wide(pd_size_wide(x) < 1e-9, x, found);
}

/* atan of |x| = offset + atan(t), |t| <= tan(pi/8). */
PD_INLINE pd_wide pd_atan_wide(pd_wide x)
{
    const pd_wide a = pd_size_wide(x), none = PD_WIDE(0.0);
    const pd_whole middle = a > 0.41421356237309503, far = a > 2.4142135623730949;
    const pd_wide over = pd_choose_wide(far, PD_WIDE(-1.0), pd_choose_wide(middle, a - 1.0, a));
    const pd_wide t = over / pd_choose_wide(far, a, pd_choose_wide(middle, a + 1.0, PD_WIDE(1.0))), z = t * t;
    pd_wide p = z * 0.01628575678849838 + -0.034570561921221349;
    p = p * z + 0.045515932182855316;
    p = p * z + -0.052304542701370367;
    p = p * z + 0.058789289977650941;
    p = p * z + -0.066664248857321945;
    p = p * z + 0.076922963750318055;
    p = p * z + -0.090909087535008648;
    p = p * z + 0.11111111105155447;
    p = p * z + -0.14285714285659828;
    p = p * z + 0.19999999999999804;
    p = p * z + -0.33333333333333331;
    const pd_wide quarter = pd_choose_wide(middle, PD_WIDE(0.78539816339744828), none);
    const pd_wide rest = pd_choose_wide(middle, PD_WIDE(3.061616997868383e-17), none);
    const pd_wide offset = pd_choose_wide(far, quarter * 2.0, quarter), more = pd_choose_wide(far, rest * 2.0, rest);
    return pd_signed_wide(offset + (t + (t * (z * p) + more)), x);
}

/* r, so that asin(s) = s + s r for z = s^2 <= 1/4. */
PD_INLINE pd_wide pd_asin_rest_wide(pd_wide z)
{
    pd_wide p = z * 0.028757851573250746 + -0.014851887366292208;
    p = p * z + 0.017400879627330897;
    p = p * z + 0.0054575066524214606;
    p = p * z + 0.010322814365207104;
    p = p * z + 0.011479177412940801;
    p = p * z + 0.013971212973775852;
    p = p * z + 0.017352392720855449;
    p = p * z + 0.022372172942150485;
    p = p * z + 0.030381944138531233;
    p = p * z + 0.044642857146355429;
    p = p * z + 0.074999999999984329;
    p = p * z + 0.16666666666666669;
    return p * z;
}

/* The root of half = (1 - |x|)/2 and what it lost: asin(|x|) is pi/2 - 2 asin(root). */
PD_INLINE pd_wide pd_half_root_wide(pd_wide half, pd_wide *lost)
{
    pd_wide low;
    const pd_wide s = pd_root_wide(half), back = pd_product_wide(s, s, &low);
    *lost = pd_choose_wide(half > 0.0, ((half - back) - low) / (s * 2.0), PD_WIDE(0.0));
    return s;
}

PD_INLINE pd_wide pd_asin_wide(pd_wide x)
{
    pd_wide lost;
    const pd_wide a = pd_size_wide(x), half = (1.0 - a) * 0.5, s = pd_half_root_wide(half, &lost);
    const pd_whole near = a <= 0.5;
    const pd_wide r = pd_asin_rest_wide(pd_choose_wide(near, a * a, half));
    const pd_wide far = 1.5707963267948966 - (s * 2.0 - (6.123233995736766e-17 - (lost + s * r) * 2.0));
    return pd_signed_wide(pd_choose_wide(near, a + a * r, far), x);
}

/* From the nearer of 0, pi/2 and pi. */
PD_INLINE pd_wide pd_acos_wide(pd_wide x)
{
    pd_wide lost;
    const pd_wide a = pd_size_wide(x), half = (1.0 - a) * 0.5, s = pd_half_root_wide(half, &lost);
    const pd_whole near = a <= 0.5;
    const pd_wide r = pd_asin_rest_wide(pd_choose_wide(near, a * a, half)), twice = (s + (lost + s * r)) * 2.0;
    const pd_wide middle = 1.5707963267948966 - (x - (6.123233995736766e-17 - x * r));
    const pd_wide left = 3.1415926535897931 - (twice - 1.2246467991473532e-16);
    return pd_choose_wide(near, middle, pd_choose_wide(x < 0.0, left, twice));
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
PD_WIDE_OF_ONE(erf) PD_WIDE_OF_ONE(sinh) PD_WIDE_OF_ONE(cosh) PD_WIDE_OF_ONE(asin) PD_WIDE_OF_ONE(acos)
PD_WIDE_OF_ONE(atan) PD_WIDE_OF_ONE(asinh) PD_WIDE_OF_ONE(acosh) PD_WIDE_OF_ONE(atanh) PD_WIDE_OF_ONE(cbrt) PD_WIDE_OF_ONE(rsqrt)
PD_WIDE_OF_ONE(log) PD_WIDE_OF_ONE(log2) PD_WIDE_OF_ONE(log1p)
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
PD_WIDE_OF_ONE_NEAR(sin) PD_WIDE_OF_ONE_NEAR(cos) PD_WIDE_OF_ONE_NEAR(tan)

#endif
