#include "launch/plan/auto_choice.hpp"

#include <algorithm>
#include <fmt/core.h>

namespace paceline {
namespace {

constexpr const char* kPlain = "plain";
constexpr const char* kLookup = "prompt-lookup";
constexpr const char* kLookupAndDraft = "prompt-lookup+draft";

std::string rate_text(const MethodRecord& record, const std::string& method) {
    const MethodRate& rate = *record.find(method);
    std::string text = fmt::format("{:.0f} tokens/s in {} earlier run{} here",
                                   rate.tokens_per_second, rate.runs, rate.runs == 1 ? "" : "s");
    const MethodRate* plain = record.find(kPlain);
    if (plain != nullptr && method != kPlain) {
        text += fmt::format(", {:.2f} times plain decoding",
                            rate.tokens_per_second / plain->tokens_per_second);
    }
    return text;
}

}  // namespace

AutoChoice choose_method(const MethodRecord& record,
                         std::size_t cores,
                         const std::vector<std::string>& known,
                         const std::string& plain_method) {
    const std::string usual = cores >= 2 ? kLookupAndDraft : kLookup;
    AutoChoice choice{.method = usual,
                      .reason =
                          "nothing is known of this model here yet; what it can lose is "
                          "bounded"};
    if (const MethodRate* tried = record.find(usual); tried != nullptr) {
        const MethodRate* best = tried;
        for (const auto& [name, rate] : record.methods) {
            const bool exists =
                name == kPlain || std::find(known.begin(), known.end(), name) != known.end();
            const double lead = best == tried ? AutoChoice::kLead : 1.0;
            if (!exists || rate.tokens_per_second <= lead * best->tokens_per_second) continue;
            best = &rate;
            choice.method = name;
        }
        choice.reason = rate_text(record, choice.method);
    }
    for (const char* next : {kLookup, kPlain}) {
        if (choice.method != next && choice.method != kPlain) choice.fallbacks.emplace_back(next);
    }
    if (choice.method == kPlain) choice.method = plain_method;
    std::replace(choice.fallbacks.begin(), choice.fallbacks.end(), std::string{kPlain},
                 plain_method);
    return choice;
}

}  // namespace paceline
