// OraclePhases: phases of a text in which an oracle's drafts and exits are right less often, so
// that their errors come in groups: a two-state Markov chain over the positions.
//
//              1 of `length` positions
//     [bad] -----------------------------> [good]
//           <-----------------------------
//              so often that a part `share` of all positions is bad
//
// The chain is a function of the position alone: all answers, and draft and exit, have the same
// phases. Computed as far as it is asked for. One thread.
#pragma once

#include <vector>

#include "ipc/base/ids.hpp"

namespace paceline {

struct OracleBadPhases {
    double share = 0.0;      // of the positions, 0 .. below 1
    double length = 32.0;    // mean tokens of a bad phase, >= 1 and >= share / (1 - share)
    double accuracy = 0.25;  // in them a first choice is right so many times as often, 0 .. 1

    /// Of a good position: the probability that the next one is bad.
    [[nodiscard]] double turns_bad() const { return share / (length * (1.0 - share)); }
    [[nodiscard]] bool possible() const {
        return share >= 0.0 && share < 1.0 && length >= 1.0 && turns_bad() <= 1.0;
    }
};

class OraclePhases {
public:
    /// Precondition: `phases` are possible().
    explicit OraclePhases(const OracleBadPhases& phases);

    [[nodiscard]] bool bad(Position position);
    /// How many times as often a first choice at the position is right as in a good phase.
    [[nodiscard]] double accuracy(Position position) {
        return bad(position) ? phases_.accuracy : 1.0;
    }

private:
    OracleBadPhases phases_;
    std::vector<bool> bad_;  // by position
};

}  // namespace paceline
