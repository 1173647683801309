// Products with block types (packed_blocks.hpp): one loop for all of them, shaped by a BlockFormat
// at compile time. Included by gemm.inl.hpp alone, in its namespace.
#pragma once

// The entries of the tables as the kernels multiply them: with their format's offset added.
constexpr std::array<std::uint8_t, 16> with_offset(const std::array<std::int8_t, 16>& table,
                                                   int offset) {
    std::array<std::uint8_t, 16> codes = {};
    for (std::size_t i = 0; i < codes.size(); ++i)
        codes[i] = static_cast<std::uint8_t>(table[i] + offset);
    return codes;
}
constexpr std::array<std::uint8_t, 16> kIq4Codes =
    with_offset(kIq4Table, block_format(PackedType::IQ4NL).offset);
constexpr std::array<std::uint8_t, 16> kMxfp4Codes =
    with_offset(kMxfp4Table, block_format(PackedType::MXFP4).offset);

/// A format with this offset has codes of 8 bits, w + 128 as int8's are; the codes of all others
/// are below 64.
constexpr int kInt8Offset = 128;

/// Codes 4 kWord + b (b of 0..3) of each lane, with kWord of 0..7.
template <class S, PackedType kType, int kWord>
[[gnu::always_inline]] inline typename S::B load_codes(const LaneBlock<S>& w, int codes) {
    constexpr BlockFormat kFormat = block_format(kType);
    constexpr int kInLow = 8 / kFormat.low_bits;  // words in a line of the low plane
    const std::uint8_t* low = w.quants + codes + kLine * (kWord / kInLow);
    if constexpr (!S::kPrefetchesBlocks && kWord % kInLow == 0) prefetch_line(w, low);
    typename S::B code = S::template field<kFormat.low_bits, kFormat.low_bits*(kWord % kInLow), 0>(
        S::load_bytes(low));
    if constexpr (kFormat.top_bits > 0) {
        constexpr int kInTop = 8 / kFormat.top_bits;
        const std::uint8_t* top = w.quants + codes + kLine * (kFormat.low_bits + kWord / kInTop);
        if constexpr (!S::kPrefetchesBlocks && kWord % kInTop == 0) prefetch_line(w, top);
        code =
            S::either(code, S::template field<kFormat.top_bits, kFormat.top_bits*(kWord % kInTop),
                                              kFormat.low_bits>(S::load_bytes(top)));
    }
    if constexpr (kFormat.table == CodeTable::Iq4) code = S::look_up(code, kIq4Codes.data());
    if constexpr (kFormat.table == CodeTable::Mxfp4) code = S::look_up(code, kMxfp4Codes.data());
    return code;
}

/// The largest code as the kernels multiply it.
constexpr int code_max(const BlockFormat& format) {
    if (format.table == CodeTable::Iq4)
        return *std::max_element(kIq4Codes.begin(), kIq4Codes.end());
    if (format.table == CodeTable::Mxfp4)
        return *std::max_element(kMxfp4Codes.begin(), kMxfp4Codes.end());
    return (1 << (format.low_bits + format.top_bits)) - 1;
}

/// Calls `add(r, b, low, high, first, second)` for each row and lane block: the codes of words
/// kWord and kWord + 1, and their inputs, of which those of a group begin at `a`.
template <class S, PackedType kType, int kWord, int kRows, int kBlocks, class Add>
[[gnu::always_inline]] inline void for_words(
    const LaneBlock<S> (&w)[kBlocks], int codes, const std::int8_t* a, int step, Add add) {
    typename S::B low[kBlocks];
    typename S::B high[kBlocks];
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) {
        low[b] = load_codes<S, kType, kWord>(w[b], codes);
        high[b] = load_codes<S, kType, kWord + 1>(w[b], codes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
        const typename S::B first = S::broadcast4(a + kWord * step + 4 * r);
        const typename S::B second = S::broadcast4(a + (kWord + 1) * step + 4 * r);
#pragma GCC unroll 4
        for (int b = 0; b < kBlocks; ++b) {
            add(r, b, low[b], high[b], first, second);
        }
    }
}

/// Adds the products of words kWord to kWord + 3, half of a group.
template <class S, PackedType kType, int kWord, int kRows, int kBlocks>
[[gnu::always_inline]] inline void add_half(const LaneBlock<S> (&w)[kBlocks],
                                            int codes,
                                            const std::int8_t* a,
                                            int step,
                                            typename S::I (&sum)[kRows][kBlocks]) {
    using B = typename S::B;
    using I = typename S::I;
    constexpr BlockFormat kFormat = block_format(kType);
    constexpr bool kSums16 = S::kSums16 && kFormat.offset != kInt8Offset;
    constexpr int kFit = words_in_16_bits(code_max(kFormat));
    [[maybe_unused]] I pairs[kRows][kBlocks];
    const auto begin = [&](int r, int b, B low, B high, B first, B second) {
        if constexpr (kSums16) {
            pairs[r][b] = S::add16(S::products16(low, first), S::products16(high, second));
            if constexpr (kFit < 4) sum[r][b] = S::add_pairs16(sum[r][b], pairs[r][b]);
        } else if constexpr (kFormat.offset == kInt8Offset) {
            sum[r][b] = S::dot_int8(S::dot_int8(sum[r][b], low, first), high, second);
        } else {
            sum[r][b] = S::dot_nibbles(S::dot_nibbles(sum[r][b], low, first), high, second);
        }
    };
    const auto accumulate = [&](int r, int b, B low, B high, B first, B second) {
        if constexpr (kSums16 && kFit >= 4) {
            const I both = S::add16(S::products16(low, first), S::products16(high, second));
            sum[r][b] = S::add_pairs16(sum[r][b], S::add16(pairs[r][b], both));
        } else {
            begin(r, b, low, high, first, second);
        }
    };
    for_words<S, kType, kWord, kRows, kBlocks>(w, codes, a, step, begin);
    for_words<S, kType, kWord + 2, kRows, kBlocks>(w, codes, a, step, accumulate);
}

/// What products are added to, so that the offset of their codes falls out; `count`: the sum of the
/// inputs.
template <class S, PackedType kType>
[[gnu::always_inline]] inline typename S::I start_of(std::int32_t count) {
    constexpr int kOffset = block_format(kType).offset;
    if constexpr (kOffset == 0) return S::zero_i();
    if constexpr (kOffset == kInt8Offset) return S::int8_start(count);
    return S::set1_i(-kOffset * count);
}

template <class S>
struct LaneScale {
    typename S::F scale;
    typename S::F minimum;  // is added; unused by forms without one
};

/// Of inputs 16 half to 16 half + 15 of group g. Loaded anew for each: it is in the L1 cache, and
/// the registers are the accumulators'.
template <class S, PackedType kType>
[[gnu::always_inline]] inline LaneScale<S> load_scale(const LaneBlock<S>& w,
                                                      const GroupOffsets& at,
                                                      int g,
                                                      int half) {
    constexpr ScaleForm kForm = block_format(kType).form;
    const auto halves = [&](int byte) {
        return S::load_half(reinterpret_cast<const std::uint16_t*>(w.scales + byte));
    };
    const std::uint8_t* bytes = w.bytes + at.scales;
    if constexpr (kForm == ScaleForm::Half) return {halves(at.scales), S::zero()};
    if constexpr (kForm == ScaleForm::HalfMinimum)
        return {halves(at.scales), halves(at.scales + 2 * kTileRows)};
    if constexpr (kForm == ScaleForm::Power) return {S::load_power(bytes), S::zero()};
    if constexpr (has_head(kForm)) {
        const int second = has_minimum(kForm) ? 0 : g / kBlockGroups % 2 * 2 * kTileRows;
        const typename S::F d = halves(at.head + second);
        if constexpr (kForm == ScaleForm::Block) return {S::mul(d, S::load_i8(bytes)), S::zero()};
        if constexpr (kForm == ScaleForm::BlockHalves)
            return {S::mul(d, S::load_i8(bytes + half * kTileRows)), S::zero()};
        if constexpr (has_minimum(kForm)) {
            const typename S::F dmin = halves(at.head + 2 * kTileRows);  // negated
            if constexpr (kForm == ScaleForm::BlockMinimum)
                return {S::mul(d, S::load_u8(bytes)), S::mul(dmin, S::load_u8(bytes + kTileRows))};
            return {S::mul(d, S::load_low4(bytes + half * kTileRows)),
                    S::mul(dmin, S::load_high4(bytes + half * kTileRows))};
        }
    }
}

template <class S, PackedType kType, int kRows, int kBlocks>
void multiply_blocks(const LaneBlock<S> (&w)[kBlocks],
                     const PanelInput& x,
                     int groups,
                     Accumulators<S, kRows, kBlocks>& acc) {
    constexpr BlockFormat kFormat = block_format(kType);
    constexpr bool kHalves = has_halves(kFormat.form);
    const auto* a = static_cast<const std::int8_t*>(x.values) + 4 * x.row;
    const int step = 4 * x.width;
    for (int g = 0; g < groups; ++g, a += 8 * step) {
        const GroupOffsets at = group_offsets(kFormat, g);
        const float* scale = x.scales + g * x.width + x.row;
        const float* total = x.sums + g * x.width + x.row;
        const std::int32_t* counts = x.counts + g * x.width + x.row;
        const std::int32_t* halves = x.halves + g * x.width + x.row;
        if constexpr (S::kPrefetchesBlocks)
            prefetch_group<S, lines(code_bytes(kFormat) + scale_bytes(kFormat.form))>(w, at.codes);
        typename S::I sum[kRows][kBlocks];
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {  // 16 inputs
            const auto count = [&](int r) {
                if (!kHalves) return counts[r];
                return h == 0 ? halves[r] : counts[r] - halves[r];
            };
            if (kHalves || h == 0) {
                for (int r = 0; r < kRows; ++r) {
                    for (int b = 0; b < kBlocks; ++b) sum[r][b] = start_of<S, kType>(count(r));
                }
            }
            if (h == 0) {
                add_half<S, kType, 0, kRows, kBlocks>(w, at.codes, a, step, sum);
            } else {
                add_half<S, kType, 4, kRows, kBlocks>(w, at.codes, a, step, sum);
            }
            if (!kHalves && h == 0) continue;
#pragma GCC unroll 4
            for (int b = 0; b < kBlocks; ++b) {
                if constexpr (!S::kPrefetchesBlocks)
                    if (h == 1 || !kHalves) prefetch_line(w[b], w[b].bytes + at.scales);
                const LaneScale<S> of = load_scale<S, kType>(w[b], at, g, h);
#pragma GCC unroll 8
                for (int r = 0; r < kRows; ++r) {
                    const typename S::F product = S::mul(of.scale, S::set1(scale[r]));
                    typename S::F all = S::fma(S::to_float(sum[r][b]), product, acc[r][b]);
                    if constexpr (has_minimum(kFormat.form)) {
                        const float inputs =
                            kHalves ? scale[r] * static_cast<float>(count(r)) : total[r];
                        all = S::fma(of.minimum, S::set1(inputs), all);
                    }
                    acc[r][b] = all;
                }
            }
        }
    }
}
