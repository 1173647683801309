// Grammars of the toy's 48 tokens, behind the interface of the real ones: an automaton that a seed
// draws.
//
// A state follows from the one before and a token. Some force one token, the others allow two
// tokens of three; from a depth on that the seed draws some allow an end token beside others, and
// some an end alone. A matcher checks that no more is taken back than was accepted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/decoding/request.hpp"
#include "ipc/base/check.hpp"
#include "model/grammar/grammar.hpp"
#include "tests/support/toy/toy_backend.hpp"

namespace paceline::testing {

inline constexpr TokenId kToyEnd = 5;

class ToyMatcher final : public GrammarMatcher {
public:
    ToyMatcher(std::uint64_t seed, std::vector<TokenId> ends)
        : ends_{std::move(ends)}, depth_min_{4 + seed % 3 * 16}, states_{mix(seed, 77)} {}

    void fill(TokenMask& mask) override {
        mask = TokenMask{kFakeVocab};
        for (TokenId token = 0; token < kFakeVocab; ++token)
            if (allows(token)) mask.allow(token);
    }
    bool accept(TokenId token) override {
        if (!allows(token)) return false;
        states_.push_back(is_end(token) ? kOver
                                        : mix(states_.back(), static_cast<std::uint64_t>(token)));
        return true;
    }
    void roll_back(std::size_t tokens) override {
        PACE_CHECK(tokens < states_.size(), "more is taken back than was accepted");
        states_.resize(states_.size() - tokens);
    }
    std::string forced_bytes() override {
        TokenMask mask;
        fill(mask);
        const std::optional<TokenId> only = mask.only();
        return only && !is_end(*only) ? std::string(1, static_cast<char>('0' + *only))
                                      : std::string{};
    }

private:
    static constexpr std::uint64_t kOver = 0;

    static std::uint64_t mix(std::uint64_t state, std::uint64_t with) {
        std::uint64_t x = state + 0x9e3779b97f4a7c15ULL * (with + 1);
        x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
        x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
        return (x ^ (x >> 31U)) | 1U;
    }
    [[nodiscard]] bool is_end(TokenId token) const {
        return std::find(ends_.begin(), ends_.end(), token) != ends_.end();
    }
    [[nodiscard]] bool allows(TokenId token) const {
        const std::uint64_t state = states_.back();
        if (state == kOver || token < 0 || token >= kFakeVocab) return false;
        const std::uint64_t kind = state / 2 % 16;
        const bool may_end = states_.size() > depth_min_;
        if (is_end(token)) return may_end && kind < 3;
        if (kind == 2 && may_end) return false;
        if (kind >= 12) return token == forced(state);
        return mix(state, 1000 + static_cast<std::uint64_t>(token)) / 2 % 3 != 0 ||
               token == forced(state);
    }
    [[nodiscard]] TokenId forced(std::uint64_t state) const {
        auto token = static_cast<TokenId>(state / 64 % kFakeVocab);
        while (is_end(token)) token = (token + 1) % kFakeVocab;
        return token;
    }

    std::vector<TokenId> ends_;
    std::size_t depth_min_;              // tokens before an answer may end
    std::vector<std::uint64_t> states_;  // before each token, and now
};

class ToyLoader final : public GrammarLoader {
public:
    Result<std::unique_ptr<GrammarMatcher>> match(const CompiledGrammarPtr& grammar,
                                                  std::span<const TokenId> end_tokens) override {
        if (!grammar->bytes.starts_with("toy "))
            return Error{Errc::BadFile, "no grammar of the toy"};
        return std::unique_ptr<GrammarMatcher>{std::make_unique<ToyMatcher>(
            std::stoull(grammar->bytes.substr(4)),
            std::vector<TokenId>{end_tokens.begin(), end_tokens.end()})};
    }
};

inline std::shared_ptr<GrammarLoader> toy_grammars() {
    return std::make_shared<ToyLoader>();
}

/// Its answer belongs to the language of the seed.
inline void make_constrained(Request& request, std::uint64_t seed) {
    request.grammar = {GrammarKind::Regex, "toy " + std::to_string(seed)};
    request.compiled = std::make_shared<const CompiledGrammar>(
        CompiledGrammar{hash_of(request.grammar), request.grammar.text});
    if (request.end_tokens.empty()) request.end_tokens = {kToyEnd};
}

/// Whether a matcher of the request's grammar accepts all of it.
inline bool is_allowed(const Request& request, std::span<const TokenId> answer) {
    if (request.compiled == nullptr) return true;
    const auto matcher = toy_grammars()->match(request.compiled, request.end_tokens);
    return std::all_of(answer.begin(), answer.end(),
                       [&](TokenId token) { return matcher.value()->accept(token); });
}

}  // namespace paceline::testing
