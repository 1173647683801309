// Drawing tokens on the device, so that only ids cross to the host.
//
// The counterpart of sample() and candidates() (model/sampling/) for rows without penalties and
// logit bias: launch_draw() gives the very token of sample(), with top-k, top-p and min-p, and
// launch_candidates() the tokens and log_probs of candidates(), all of them bit for bit (a zero's
// sign aside). docs/sampling.md has the definitions, sample_rows.hpp the way from SamplingParams
// to a row.
//
// What a row gives depends neither on the other rows nor on the shape of the grid. Rows of all
// kinds may be mixed in one launch. All pointers are of device memory, and belong to the caller;
// the scratch holds nothing between two launches, and a stream at a time may use it.
// Errors: DeviceError where a launch is refused or a size is beyond what is said here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "model/kernels/cuda/runtime.hpp"

namespace paceline::cuda {

inline constexpr int kVocabMax = 1 << 18;
inline constexpr int kCandidatesMax = 16;
inline constexpr float kEveryZ = -std::numeric_limits<float>::infinity();

/// One token to draw. Plain memory, made on the host by draw_row() of sample_rows.hpp.
struct DrawRow {
    std::uint64_t seed = 0;
    std::int32_t position = 0;         // of the token drawn; >= 0
    std::int32_t logits_row = 0;       // which row of the logits
    float inverse_temperature = 0.0f;  // 0: greedy, and the rest does not matter
    std::int32_t top_k = 0;            // 0: all
    float top_p = 1.0f;                // 1: all
    float z_min = kEveryZ;             // or fixed_log(min_p)

    [[nodiscard]] bool greedy() const { return !(inverse_temperature > 0.0f); }
    [[nodiscard]] bool has_cut() const { return !greedy() && (top_k > 0 || top_p < 1.0f); }
};

/// The tokens of a head that knows only some, as in listed_candidates().
struct TokenList {
    const std::int32_t* tokens = nullptr;  // [count], ascending; nullptr: the logits are of all
    const std::int32_t* places = nullptr;  // [vocab]: where a token stands in `tokens`, or -1
    int count = 0;
};

struct DrawInput {
    const float* logits = nullptr;  // [rows of logits][stride]; not changed
    std::int64_t stride = 0;
    int vocab = 0;                  // 1 .. kVocabMax
    TokenList list = {};            // with one, a row of logits has list.count of them
    const DrawRow* rows = nullptr;  // [row_count]
    int row_count = 0;              // 0 .. 65535
};

/// Which kernels are launched. A row that needs one of those left out is drawn wrongly; one too
/// many costs its launch.
struct DrawNeeds {
    bool noise = true;  // rows that are not greedy
    bool cuts = true;   // rows with has_cut()
};

/// What these rows need; `rows` is host memory.
[[nodiscard]] DrawNeeds needs_of(const DrawRow* rows, int row_count);

/// Bytes of scratch, 16-aligned, for `row_count` rows of `vocab` tokens. Candidates list what may
/// be among them, and need 8 bytes for each token of each row.
[[nodiscard]] std::size_t draw_scratch_bytes(int row_count, int vocab);
[[nodiscard]] std::size_t candidate_scratch_bytes(int row_count, int vocab);

/// Writes the token of each row to `tokens` [row_count]; -1 where every logit is NaN or -inf.
void launch_draw(Stream& stream,
                 const DrawInput& input,
                 DrawNeeds needs,
                 std::byte* scratch,
                 std::int32_t* tokens);

/// The best of a row's race, best first.
struct CandidateList {
    std::int32_t count;
    std::int32_t tokens[kCandidatesMax];
    float scores[kCandidatesMax];  // the logit of a greedy row, else z + gumbel
    float log_probs[kCandidatesMax];
};

/// Writes the `count` (1 .. kCandidatesMax) best of each row, at most, to `lists` [row_count];
/// entries after a list's count are 0.
void launch_candidates(Stream& stream,
                       const DrawInput& input,
                       DrawNeeds needs,
                       int count,
                       std::byte* scratch,
                       CandidateList* lists);

}  // namespace paceline::cuda
