// choose_method(): the method of `--method auto`, from what earlier runs have shown.
//
//     nothing is known          prompt-lookup+draft with two cores, else prompt-lookup: they have
//                               one process that computes, or two of which one waits; the account
//                               of costs and gains bounds what they can lose. The next of them, or
//                               plain decoding, where `known` lacks it
//     the default was tried     the method of the record with the greatest gain over plain
//                               decoding, if it was run kRunsMin times and gains kLead more than
//                               the default; plain decoding, if all lose more than the account
//                               lets a method lose (kLossMax). Methods get into the record by being
//                               run (--method), and by `paceline plan`
//     ... and kPlainRunsMax runs    the default once more: the machine, or its load, may have
//     have decoded plainly          changed
//
// A method that cannot be started is followed by the next of `fallbacks`, plain decoding last.
// Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launch/plan/method_record.hpp"

namespace paceline {

inline constexpr const char* kAutoMethod = "auto";

struct AutoChoice {
    static constexpr double kLead = 1.05;
    static constexpr double kLossMax = 0.05;     // what the account allows, and the noise of runs
    static constexpr std::int64_t kRunsMin = 3;  // a single run is too noisy
    static constexpr std::int64_t kPlainRunsMax = 32;

    std::string method;
    std::string reason;                       // a sentence, without a full stop
    std::vector<std::string> fallbacks = {};  // after `method`, in order

    friend bool operator==(const AutoChoice&, const AutoChoice&) = default;
};

/// `cores`: that this program may use. `known`: the methods that can be run. `plain_method`: what
/// plain decoding is called here.
[[nodiscard]] AutoChoice choose_method(const MethodRecord& record,
                                       std::size_t cores,
                                       const std::vector<std::string>& known,
                                       const std::string& plain_method);

}  // namespace paceline
