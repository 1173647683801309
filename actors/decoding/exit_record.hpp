// ExitRecord: the candidates of an exit's evaluations until the committed text shows which were
// right.
//
// Pure. Not thread-safe. Bounded by kEvaluationsMax.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "ipc/base/ids.hpp"

namespace paceline {

/// The candidates of one evaluation for one request, in the order of the positions.
struct ExitCandidates {
    struct Place {
        Position at = 0;                   // for which one of `tokens` was predicted
        std::vector<TokenId> path = {};    // the tokens before it that were not in the text yet
        std::vector<TokenId> tokens = {};  // nothing that others had proposed
    };
    RequestId request;
    Attempt attempt;
    bool chained = false;  // each follows the one before it: those after a wrong one are wrong
    std::vector<Place> places = {};
};

class ExitRecord {
public:
    static constexpr std::size_t kEvaluationsMax = 64;

    /// The oldest evaluation is dropped if there are too many.
    void add(ExitCandidates said);
    /// The request's text has grown. For each evaluation whose positions are all committed now: how
    /// many of its candidates were right.
    [[nodiscard]] std::vector<std::size_t> resolve(RequestId request,
                                                   Attempt attempt,
                                                   std::span<const TokenId> text);

private:
    std::deque<ExitCandidates> evaluations_;
};

}  // namespace paceline
