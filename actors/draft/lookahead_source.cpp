#include "actors/draft/lookahead_source.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <random>
#include <utility>

#include "ipc/base/check.hpp"
#include "ipc/base/limits.hpp"

namespace paceline {
namespace {

constexpr float kFirstGuess = 0.3F;    // of the newest; of older ones less
constexpr float kNextInGuess = 0.8F;   // of each token after it
constexpr float kWindowNode = 0.001F;  // less than any guess: the window yields to it

}  // namespace

std::int32_t LookaheadOptions::rows() const {
    std::int32_t most = 0;
    for (std::int32_t filled = 0; filled <= ngram - 2; ++filled) {
        const std::int32_t columns = window + ngram - 2 - filled;
        const std::int32_t guessed = filled == ngram - 2 ? guesses * (ngram - 1) : 0;
        most = std::max(most, columns * (filled + 1) + guessed);
    }
    return most;
}

Status validate(const LookaheadOptions& options) {
    const auto text = [&] {
        return fmt::format("window = {}, ngram = {}, guesses = {}", options.window, options.ngram,
                           options.guesses);
    };
    if (options.window < 1 || options.ngram < 3 || options.guesses < 0)
        return Error{Errc::BadArgument,
                     text() + ": must be at least 1, at least 3 and not negative"};
    if (options.depth() > static_cast<std::int32_t>(kGammaMax)) {
        return Error{Errc::BadArgument, fmt::format("{}: {} tokens ahead, at most {}", text(),
                                                    options.depth(), kGammaMax)};
    }
    if (options.rows() > static_cast<std::int32_t>(kVerifyRowsMax)) {
        return Error{Errc::BadArgument, fmt::format("{}: {} rows in a batch, at most {}", text(),
                                                    options.rows(), kVerifyRowsMax)};
    }
    return {};
}

LookaheadSource::LookaheadSource(LookaheadOptions options)
    : LookaheadSource{options,
                      std::make_shared<NgramPool>(static_cast<std::size_t>(options.ngram),
                                                  static_cast<std::size_t>(options.guesses))} {}

LookaheadSource::LookaheadSource(LookaheadOptions options, std::shared_ptr<NgramPool> pool)
    : options_{options}, pool_{std::move(pool)} {
    PACE_CHECK(pool_->length() == static_cast<std::size_t>(options.ngram),
               "a pool of n-grams of another length");
}

bool LookaheadSource::complete() const {
    return window_.size() == static_cast<std::size_t>(options_.ngram) - 1;
}

/// With a row 0 alone each of its nodes is observed, otherwise a branch below the root as well.
std::size_t LookaheadSource::columns() const {
    return window_.front().size() + (window_.size() > 1 ? 1 : 0);
}

void LookaheadSource::begin_window() {
    std::mt19937_64 random{1};
    std::vector<TokenId> row;
    for (std::int32_t i = 0; i < options_.window + options_.ngram - 3; ++i)
        row.push_back(text_[random() % text_.size()]);
    window_.push_back(std::move(row));
}

void LookaheadSource::commit(std::span<const TokenId> tokens) {
    if (tokens.empty()) return;
    if (!window_.empty() && planned_) step();
    text_.insert(text_.end(), tokens.begin(), tokens.end());
    if (options_.pool_from_prompt) pool_->add_end_of(text_, tokens.size());
    if (window_.empty()) begin_window();
    rows_.forget();
    planned_ = false;
}

/// The round of the text's end is over.
void LookaheadSource::step() {
    std::vector<TokenId> next;
    bool any = false;
    for (std::size_t j = 0; j < columns(); ++j) {
        const std::optional<TokenId> own = rows_.token(j);
        any = any || own;
        next.push_back(own.value_or(window_.back()[std::min(j, window_.back().size() - 1)]));
        if (!own || !complete()) continue;
        std::vector<TokenId> ngram;
        for (std::size_t row = 1; row < window_.size(); ++row) ngram.push_back(window_[row][j]);
        ngram.push_back(*own);
        pool_->add(j == 0 ? text_.back() : window_[0][j - 1], ngram);
    }
    if (!any) return;
    if (complete()) {
        std::rotate(window_.begin(), window_.begin() + 1, window_.end());
        window_.back() = std::move(next);
        window_.front().erase(window_.front().begin());
        return;
    }
    // A row more: all others, and from the second one on it too, move by the position that the text
    // has moved.
    const bool first = window_.size() == 1;
    for (std::vector<TokenId>& row : window_) row.erase(row.begin());
    if (!first) next.erase(next.begin());
    window_.push_back(std::move(next));
}

void LookaheadSource::add_window(std::vector<SourceNode>& nodes) const {
    const auto add = [&](TokenId token, std::int32_t parent) {
        nodes.push_back({.token = token, .parent = parent, .log_prob = std::log(kWindowNode)});
        return static_cast<std::int32_t>(nodes.size()) - 1;
    };
    std::vector<std::int32_t> chain{-1};  // the root, then row 0
    for (const TokenId token : window_.front()) chain.push_back(add(token, chain.back()));
    for (std::size_t j = 0; j < columns(); ++j) {
        std::int32_t at = window_.size() > 1 ? chain[j] : chain[j + 1];
        for (std::size_t row = 1; row < window_.size(); ++row) at = add(window_[row][j], at);
        nodes[static_cast<std::size_t>(at)].observe = rows_.name(j);
    }
}

void LookaheadSource::add_guesses(std::vector<SourceNode>& nodes) const {
    float rank = 1.0F;
    for (const std::vector<TokenId>& guess : pool_->after(text_.back())) {
        if (rank > static_cast<float>(options_.guesses)) return;  // a shared pool may have more
        auto at = std::int32_t{-1};
        for (const TokenId token : guess) {
            const float p = at < 0 ? kFirstGuess / rank : kNextInGuess;
            nodes.push_back({.token = token, .parent = at, .log_prob = std::log(p)});
            at = static_cast<std::int32_t>(nodes.size()) - 1;
        }
        ++rank;
    }
}

std::vector<SourceNode> LookaheadSource::grow(std::span<const TokenId> path,
                                              std::int32_t depth,
                                              const CancelToken& cancel) {
    if (!path.empty()) return DraftSource::grow(path, depth, cancel);
    std::vector<SourceNode> nodes;
    if (text_.empty()) return nodes;
    rows_.plan();
    planned_ = true;
    if (complete()) add_guesses(nodes);
    add_window(nodes);
    return nodes;
}

std::vector<TokenId> LookaheadSource::propose(std::span<const TokenId> path,
                                              std::int32_t gamma,
                                              const CancelToken& /*cancel*/) {
    if (text_.empty() || !complete()) return {};
    const TokenId last = path.empty() ? text_.back() : path.back();
    const auto& guesses = pool_->after(last);
    if (guesses.empty() || gamma <= 0) return {};
    std::vector<TokenId> tokens = guesses.front();
    if (tokens.size() > static_cast<std::size_t>(gamma))
        tokens.resize(static_cast<std::size_t>(gamma));
    return tokens;
}

}  // namespace paceline
