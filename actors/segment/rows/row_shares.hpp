// share_rows(): how many rows of a batch each request gets.
//
//     batch   [ verify rows, evenly ............ | prompts: shortest first ..... | oldest prompt ]
//             at most `verify_max`                 at least `prompts_least`, if they want that many
//
// Rows that are sent to be observed alone (`yields`) get what is left when all others have theirs.
// Prompts are kept from delaying answers and answers from starving prompts: while requests decode,
// prompts get `prompts_least` rows, and more only as long as `beside` allows. Of the prompts' rows
// a quarter is the oldest's, so that short ones cannot overtake it without end; the others go to
// the prompts with the fewest rows left.
// Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace paceline {

struct RowClaim {
    bool prompt = false;
    std::uint32_t wanted = 0;
    std::size_t left = 0;       // rows of a prompt that are not computed, `wanted` among them
    std::uint64_t arrived = 0;  // of a prompt: smaller is older
    std::uint32_t yields = 0;   // of the wanted ones, the last so many: after those of all others
    std::uint32_t granted = 0;  // the result
};

struct RowLimits {
    std::uint32_t batch = 0;          // rows in all
    std::uint32_t verify_max = 0;     // verify rows
    std::uint32_t prompts_least = 1;  // kept for prompts while others decode; less than `batch`
    /// Rows of prompts that go beside so many verify rows without delaying them too much; may be
    /// empty: none beyond `prompts_least`.
    std::function<std::uint32_t(std::uint32_t verify_rows)> beside = {};
};

/// Rows that prompts leave to requests which decode.
[[nodiscard]] std::uint32_t verify_room(std::span<const RowClaim> claims, const RowLimits& limits);

/// Sets `granted` of each, at most what it wants. A claim earlier in the list gets the odd row.
void share_rows(std::span<RowClaim> claims, const RowLimits& limits);

}  // namespace paceline
