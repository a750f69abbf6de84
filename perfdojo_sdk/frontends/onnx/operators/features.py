"""Operators of classical models: numbers of the domain ``ai.onnx.ml``, and features of texts and sounds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.frontends.onnx.reading import dtype_name
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import elementwise as e
from perfdojo_sdk.graph.operators import features as f
from perfdojo_sdk.graph.operators.gathers import gather
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.writer import is_float, number


def _tf_idf(n: Operation) -> Value:
    if n.has("pool_strings"):
        raise Refused(Reason.TYPE, "TfIdfVectorizer of strings")
    pool, counts, places = n.ints("pool_int64s"), n.ints("ngram_counts"), n.ints("ngram_indexes")
    least, most, mode = n.whole("min_gram_length"), n.whole("max_gram_length"), n.text("mode")
    if mode not in ("TF", "IDF", "TFIDF") or not places or min(places) < 0:
        raise Malformed(f"TfIdfVectorizer by {ascii(mode)[:40]} with {len(places)} places")
    ends = [*counts[1:], len(pool)]
    grams, done = [], 0
    for length, (first, last) in enumerate(zip(counts, ends, strict=True), start=1):
        if not 0 <= first <= last <= len(pool) or (last - first) % length:
            raise Malformed(f"sequences of {length} tokens from {first} to {last} of {len(pool)}")
        number_of = (last - first) // length
        chosen = places[done : done + number_of]
        if len(chosen) != number_of:
            raise Malformed(f"{len(places)} places for more sequences")
        done += number_of
        if number_of and least <= length <= most:
            grams.append(f.Grams(np.array(pool[first:last], np.int64).reshape(number_of, length), chosen))
    found = f.count_grams(n.b, n[0], grams, max(places) + 1, n.whole("max_skip_count"))
    return found if mode == "TF" else f.weighted_counts(n.b, found, n.reals("weights"), mode == "IDF")


def _mel(n: Operation) -> Value:
    [bins], [length] = n.b.known_integers(n[0]), n.b.known_integers(n[1])
    dtype = dtype_name(n.whole("output_datatype"))
    if not is_float(dtype):
        raise Refused(Reason.DTYPE, f"MelWeightMatrix of {dtype}")
    return f.mel_weights(n.b, bins, length, n[2], n[3], n[4], dtype)


def _binarizer(n: Operation) -> Value:
    limit = number(n.real("threshold", 0.0), "f32")
    if not is_float(n[0].dtype):
        raise Refused(Reason.DTYPE, f"Binarizer of {n[0].dtype}")
    return e.unary(n.b, "binarize", lambda a: f"select({a} > {limit}, 1, 0)", n[0])


def _array_feature_extractor(n: Operation) -> Value:
    x, places = n[0], n[1]
    if not x.rank:
        raise Malformed("ArrayFeatureExtractor of a scalar")
    whole = n.b.view(x, (1, x.elements)) if x.rank == 1 else x
    return gather(n.b, whole, n.b.view(places, (places.elements,)), whole.rank - 1)


RULES: Mapping[str, Rule] = {"TfIdfVectorizer": _tf_idf, "MelWeightMatrix": _mel}

#: Of the domain ``ai.onnx.ml``.
ML_RULES: Mapping[str, Rule] = {
    "Binarizer": _binarizer,
    "ArrayFeatureExtractor": _array_feature_extractor,
}
