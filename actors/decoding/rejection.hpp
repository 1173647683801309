// Rejection: the target's choice among candidates at one position, such that the chosen token is
// distributed as the target's own p, whatever was proposed (Leviathan et al.; over siblings as in
// SpecInfer).
//
//     point mass    the candidate was not drawn. x is accepted with probability p(x); if it is
//                   rejected, p becomes p without x, normalised, for the next sibling
//     drawn         the siblings were drawn from q, one after the other, without replacement.
//                   x is accepted with probability min(1, p(x) / q(x)); if it is rejected, p
//                   becomes max(p - q, 0), normalised, and q becomes q without x, normalised
//
// If all candidates are rejected the token is drawn from the remaining p.
//
// Under the point-mass rule the chosen token has the distribution p for every x: x may be the
// argmax of a q, drawn from one, or depend on the siblings before it. The drawn rule is exact only
// on average over x drawn from q: a candidate that was *chosen* (argmax of q) must count as a point
// mass, because p / q would favour it. Therefore a node with candidates of both kinds tests the
// drawn ones first. If all of them are rejected the token must have the distribution of the
// residual p' given these siblings, and the point-mass rule keeps any p'. The other order would
// require point masses that do not depend on x. A point mass that repeats a drawn sibling x changes
// nothing: x was rejected only where p(x) < q(x), so p'(x) = 0. drawn_siblings.hpp says when a
// candidate may count as drawn. Pure: random decisions come from the caller's Chance, so that a
// test can enumerate all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ipc/base/ids.hpp"

namespace paceline {

/// Makes the random decisions.
struct Chance {
    Chance() = default;
    Chance(const Chance&) = delete;
    Chance& operator=(const Chance&) = delete;
    virtual ~Chance() = default;
    /// True with this probability; 0 never, 1 or more always.
    [[nodiscard]] virtual bool happens(double probability) = 0;
    /// i with probability weights[i] / their sum; never one whose weight is 0. The sum is > 0.
    [[nodiscard]] virtual std::size_t pick(std::span<const double> weights) = 0;
};

/// The counter-based generator: decision number n at a position is a pure function of seed,
/// position and n. Its random words are none of those that the coupled draw uses, and those of the
/// two uses are different ones.
class CounterChance final : public Chance {
public:
    enum class Use : std::uint8_t { Acceptance, Drawing };
    /// `salt`: different words for nodes at one position.
    CounterChance(std::uint64_t seed,
                  Position position,
                  Use use = Use::Acceptance,
                  std::uint32_t salt = 0)
        : seed_{seed}, position_{position}, use_{use}, salt_{salt} {}
    [[nodiscard]] bool happens(double probability) override;
    [[nodiscard]] std::size_t pick(std::span<const double> weights) override;

private:
    [[nodiscard]] double uniform();  // in [0, 1), 53 bits

    std::uint64_t seed_;
    Position position_;
    Use use_;
    std::uint32_t salt_;
    std::uint32_t decision_ = 0;
};

struct CandidateTokens {
    std::span<const TokenId> tokens;              // siblings, in the order in which they were drawn
    std::span<double> q = {};                     // [vocab], used up; empty: point masses
    std::span<const TokenId> deterministic = {};  // point masses, tested after `tokens`
};

struct Choice {
    TokenId token = 0;
    std::optional<std::size_t> candidate =
        std::nullopt;  // which of `tokens`, then of `deterministic`, if any
};

/// Chooses by the rule above. `p` is [vocab], with a sum > 0 (it need not be 1), and is used up.
[[nodiscard]] Choice choose(std::span<double> p, const CandidateTokens& candidates, Chance& chance);

}  // namespace paceline
