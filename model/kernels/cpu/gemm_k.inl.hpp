// Products with Q4K and Q6K matrices (packed_k.hpp): the loops of gemm.inl.hpp with scales that are
// integers times a scale per 256 inputs. Included by gemm.inl.hpp alone, in its namespace.
#pragma once

/// A float of each lane from the head of a block of 256 inputs: d, or at kTileRows the minimum's. Loaded
/// anew for each group: it is in the L1 cache, and the registers are the accumulators'.
template <class S>
typename S::F head(const LaneBlock<S>& w, int block, int first) {
    return S::load_half(reinterpret_cast<const std::uint16_t*>(w.scales + block) + first);
}

template <class S, int kRows, int kBlocks>
void multiply_q4_k(const LaneBlock<S>* w,
                   const PanelInput& x,
                   int groups,
                   Accumulators<S, kRows, kBlocks>& acc) {
    constexpr auto kBytes = static_cast<int>(k_block_bytes(PackedType::Q4K));
    constexpr auto kPairBytes = static_cast<int>(k_pair_bytes(PackedType::Q4K));
    constexpr auto kQuants = static_cast<int>(kNibbleBytes);
    const auto* a = static_cast<const std::int8_t*>(x.values) + 4 * x.row;
    const int step = 4 * x.width;
    for (int g = 0; g < groups; ++g, a += 8 * step) {
        const int block = g / kBlockGroups * kBytes;
        const int pair = block + static_cast<int>(kBlockHead) + g % kBlockGroups / 2 * kPairBytes;
        const int half = g % 2;
        typename S::I sum[kRows][kBlocks];
        for (int r = 0; r < kRows; ++r) {
            for (int b = 0; b < kBlocks; ++b) sum[r][b] = S::zero_i();
        }
        add_nibbles<S, kRows, kBlocks>(w, pair + half * kQuants, a, step, sum);
        const float* scale = x.scales + g * x.width + x.row;
        const float* total = x.sums + g * x.width + x.row;
#pragma GCC unroll 4
        for (int b = 0; b < kBlocks; ++b) {
            const std::uint8_t* scales =
                w[b].bytes + pair + 2 * kQuants + half * static_cast<int>(kScaleBytes);
            const typename S::F s = S::mul(head<S>(w[b], block, 0), S::load_u8(scales));
            const typename S::F m =  // its head is negated
                S::mul(head<S>(w[b], block, kTileRows), S::load_u8(scales + kTileRows));
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) {
                const typename S::F product = S::mul(s, S::set1(scale[r]));
                acc[r][b] = S::fma(S::to_float(sum[r][b]), product, acc[r][b]);
                acc[r][b] = S::fma(m, S::set1(total[r]), acc[r][b]);
            }
        }
    }
}

template <class S, int kRows, int kBlocks>
void multiply_q6_k(const LaneBlock<S>* w,
                   const PanelInput& x,
                   int groups,
                   Accumulators<S, kRows, kBlocks>& acc) {
    constexpr auto kBytes = static_cast<int>(k_block_bytes(PackedType::Q6K));
    constexpr auto kPairBytes = static_cast<int>(k_pair_bytes(PackedType::Q6K));
    constexpr auto kQuants = static_cast<int>(kNibbleBytes);
    constexpr auto kTops = static_cast<int>(kTopBytes);
    const auto* a = static_cast<const std::int8_t*>(x.values) + 4 * x.row;
    const int step = 4 * x.width;
    for (int g = 0; g < groups; ++g) {
        const int block = g / kBlockGroups * kBytes;
        const int pair = block + static_cast<int>(kBlockHead) + g % kBlockGroups / 2 * kPairBytes;
        const int half = g % 2;
        const float* scale = x.scales + g * x.width + x.row;
        const std::int32_t* counts = x.counts + g * x.width + x.row;
        const std::int32_t* halves = x.halves + g * x.width + x.row;
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {  // 16 inputs, which share an integer scale
            typename S::I sum[kRows][kBlocks];
            for (int r = 0; r < kRows; ++r) {
                const std::int32_t count = h == 0 ? halves[r] : counts[r] - halves[r];
                for (int b = 0; b < kBlocks; ++b) sum[r][b] = S::set1_i(-32 * count);
            }
#pragma GCC unroll 2
            for (int i = 0; i < 2; ++i, a += 2 * step) {
                typename S::B low[kBlocks];
                typename S::B high[kBlocks];
#pragma GCC unroll 4
                for (int b = 0; b < kBlocks; ++b) {
                    const std::uint8_t* quants =
                        w[b].quants + pair + half * kQuants + (2 * h + i) * 64;
                    const std::uint8_t* tops =
                        w[b].quants + pair + 2 * kQuants + half * kTops + h * 64;
                    prefetch(w[b], quants);
                    if (i == 0) prefetch(w[b], tops);
                    const typename S::B both = S::load_bytes(quants);
                    const typename S::B two = S::load_bytes(tops);
                    low[b] = S::with_top(S::low_nibbles(both), two, 2 * i);
                    high[b] = S::with_top(S::high_nibbles(both), two, 2 * i + 1);
                }
#pragma GCC unroll 8
                for (int r = 0; r < kRows; ++r) {
                    const typename S::B first = S::broadcast4(a + 4 * r);
                    const typename S::B second = S::broadcast4(a + step + 4 * r);
#pragma GCC unroll 4
                    for (int b = 0; b < kBlocks; ++b) {
                        sum[r][b] = S::dot_nibbles(sum[r][b], low[b], first);
                        sum[r][b] = S::dot_nibbles(sum[r][b], high[b], second);
                    }
                }
            }
#pragma GCC unroll 4
            for (int b = 0; b < kBlocks; ++b) {
                const std::uint8_t* scales = w[b].bytes + pair + 2 * (kQuants + kTops) +
                                             half * static_cast<int>(kScaleBytes) + h * kTileRows;
                const typename S::F s = S::mul(head<S>(w[b], block, 0), S::load_i8(scales));
#pragma GCC unroll 8
                for (int r = 0; r < kRows; ++r) {
                    const typename S::F product = S::mul(s, S::set1(scale[r]));
                    acc[r][b] = S::fma(S::to_float(sum[r][b]), product, acc[r][b]);
                }
            }
        }
    }
}
