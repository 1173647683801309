#include "launch/plan/auto_choice.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <string_view>

#include "launch/config/method_list.hpp"

namespace paceline {
namespace {

constexpr std::string_view kPlain = kPlainMethod;
constexpr std::string_view kLookup = "prompt-lookup";
constexpr std::string_view kLookupAndDraft = "prompt-lookup+draft";

std::string gain_text(const MethodRate& rate) {
    return fmt::format("{:.2f} times plain decoding in {} earlier run{} here", rate.gain, rate.runs,
                       rate.runs == 1 ? "" : "s");
}

}  // namespace

AutoChoice choose_method(const MethodRecord& record,
                         std::size_t cores,
                         const std::vector<std::string>& known,
                         const std::string& plain_method) {
    const auto exists = [&known](std::string_view name) {
        return std::find(known.begin(), known.end(), name) != known.end();
    };
    const std::string usual{cores >= 2 && exists(kLookupAndDraft) ? kLookupAndDraft
                            : exists(kLookup)                     ? kLookup
                                                                  : kPlain};
    AutoChoice choice{.method = usual,
                      .reason =
                          "nothing is known of this model here yet; what it can lose is "
                          "bounded"};
    if (const MethodRate* tried = record.find(usual); tried != nullptr) {
        double best = tried->gain;
        choice.reason = gain_text(*tried);
        for (const auto& [name, rate] : record.methods) {
            const double lead = choice.method == usual ? AutoChoice::kLead : 1.0;
            // Plain decoding in a stage is in the record as a measure; `plain` is faster.
            if (name == kPlainPipeline || !exists(name)) continue;
            if (rate.runs < AutoChoice::kRunsMin || rate.gain <= lead * best) continue;
            best = rate.gain;
            choice.method = name;
            choice.reason = gain_text(rate);
        }
        if (best < 1.0 - AutoChoice::kLossMax && tried->runs >= AutoChoice::kRunsMin) {
            const bool again = record.plain_runs >= AutoChoice::kPlainRunsMax;
            choice.method = again ? usual : kPlain;
            choice.reason = again ? fmt::format("it had {}, and is tried again after {} plain runs",
                                                gain_text(*tried), record.plain_runs)
                                  : fmt::format("of {}, {}", usual, gain_text(*tried));
        }
    }
    if (usual == kPlain)
        choice.reason = "no method that auto begins with can decode this model here";
    for (const std::string_view next : {kLookup, kPlain}) {
        const bool left = next == kPlain || exists(next);
        if (left && choice.method != next && choice.method != kPlain)
            choice.fallbacks.emplace_back(next);
    }
    if (choice.method == kPlain) choice.method = plain_method;
    std::replace(choice.fallbacks.begin(), choice.fallbacks.end(), std::string{kPlain},
                 plain_method);
    return choice;
}

}  // namespace paceline
