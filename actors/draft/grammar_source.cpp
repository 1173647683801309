#include "actors/draft/grammar_source.hpp"

#include <cmath>
#include <utility>

namespace paceline {
namespace {

constexpr float kForced =
    0.98F;  // the spelling is a guess where the grammar forces bytes, not tokens

}  // namespace

GrammarSource::GrammarSource(GrammarLoader& loader,
                             const BeginPayload& spec,
                             std::unique_ptr<DraftSource> next)
    : grammar_{loader, spec.compiled, spec.end_tokens, spec.finish_rule().answer_begin},
      next_{std::move(next)} {}

void GrammarSource::commit(std::span<const TokenId> tokens) {
    text_.insert(text_.end(), tokens.begin(), tokens.end());
    if (next_ != nullptr) next_->commit(tokens);
}

std::vector<TokenId> GrammarSource::propose(std::span<const TokenId> path,
                                            std::int32_t gamma,
                                            const CancelToken& cancel) {
    std::vector<TokenId> tokens;
    for (const Candidate& one : weigh(path, gamma, cancel)) tokens.push_back(one.token);
    return tokens;
}

/// What the path and the proposals add to the matcher is taken back by the next follow().
std::vector<Candidate> GrammarSource::weigh(std::span<const TokenId> path,
                                            std::int32_t gamma,
                                            const CancelToken& cancel) {
    std::vector<Candidate> candidates;
    broken_ = broken_ || !grammar_.follow(text_);
    if (!broken_) {
        for (const TokenId token : path) {
            if (!grammar_.accept(token)) return {};  // nothing below it can be the target's
        }
        for (const TokenId token : grammar_.forced_tokens(static_cast<std::size_t>(gamma))) {
            if (!grammar_.accept(token)) break;
            candidates.push_back({.token = token, .log_prob = std::log(kForced)});
        }
        origin_ = msg::Origin::Forced;
    }
    if (!candidates.empty() || next_ == nullptr) return candidates;
    origin_ = next_->origin();
    for (const Candidate& one : next_->weigh(path, gamma, cancel)) {
        if (!broken_ && !grammar_.accept(one.token)) break;
        candidates.push_back(one);
    }
    return candidates;
}

}  // namespace paceline
