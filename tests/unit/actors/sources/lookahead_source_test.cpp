// LookaheadSource against a reference: the rows of a step as the paper's code lays them out, with
// the attention mask written down as a table, from which each row's visible tokens follow.
#include "actors/draft/lookahead_source.hpp"

#include <deque>
#include <random>
#include <set>

#include <doctest/doctest.h>

#include "tests/unit/actors/sources/toy_text.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

class PlainLookahead {
public:
    PlainLookahead(const ToyText& target, Tokens prompt, LookaheadOptions options)
        : target_{target}, text_{std::move(prompt)}, o_{options} {
        std::mt19937_64 random{1};
        rows_.emplace_back();
        for (int i = 0; i < W() + N() - 3; ++i) rows_[0].push_back(text_[random() % text_.size()]);
        if (o_.pool_from_prompt) learn_text(text_.size());
    }

    /// One token of a step's input: its position behind the root, and the inputs that it sees.
    struct Input {
        TokenId token;
        int position;
        std::vector<bool> sees;
    };

    /// Root, rows and guesses, with the mask: all see the root.
    [[nodiscard]] std::vector<Input> inputs() const {
        std::vector<Input> all;
        struct Place {
            int row;     // -1: the root; 100 + g: a guess
            int column;  // of a guess: the token's index
        };
        std::vector<Place> places;
        const auto add = [&](TokenId token, int position, Place place) {
            all.push_back({token, position, {}});
            places.push_back(place);
        };
        add(text_.back(), 0, {-1, 0});
        for (int j = 0; j < size(0); ++j) add(rows_[0][static_cast<std::size_t>(j)], 1 + j, {0, j});
        for (int l = 1; l < static_cast<int>(rows_.size()); ++l) {
            for (int j = 0; j < size(l); ++j)
                add(rows_[static_cast<std::size_t>(l)][static_cast<std::size_t>(j)], l + j, {l, j});
        }
        int g = 0;
        for (const Tokens& guess : guesses()) {
            for (std::size_t i = 0; i < guess.size(); ++i)
                add(guess[i], static_cast<int>(i) + 1, {100 + g, static_cast<int>(i)});
            ++g;
        }
        for (std::size_t at = 0; at < all.size(); ++at) {
            const Place from = places[at];
            all[at].sees.resize(all.size());
            for (std::size_t other = 0; other < all.size(); ++other) {
                const Place to = places[other];
                bool sees = to.row == -1;
                if (from.row >= 100)
                    sees = sees || (to.row == from.row && to.column <= from.column);
                // Row 0 is causal. Column j of the rows below stands on column j of [root, row 0].
                if (from.row == 0) sees = sees || (to.row == 0 && to.column <= from.column);
                if (from.row >= 1 && from.row < 100) {
                    sees = sees || (to.row == 0 && to.column < from.column) ||
                           (to.row >= 1 && to.row <= from.row && to.column == from.column);
                }
                all[at].sees[other] = sees;
            }
        }
        return all;
    }
    /// What an input sees behind the root, by position, itself included.
    static Tokens visible(const std::vector<Input>& all, std::size_t at) {
        std::map<int, TokenId> by_position;
        for (std::size_t other = 1; other < all.size(); ++other) {
            if (!all[at].sees[other]) continue;
            CHECK(!by_position.contains(all[other].position));
            by_position[all[other].position] = all[other].token;
        }
        Tokens path;
        for (const auto& [position, token] : by_position) {
            CHECK(position == static_cast<int>(path.size()) + 1);
            path.push_back(token);
        }
        return path;
    }

    Tokens step() {
        const std::vector<Input> all = inputs();
        const int last = static_cast<int>(rows_.size()) - 1;
        const std::size_t begin = [&] {
            std::size_t at = 1;
            for (int l = 0; l < last; ++l) at += rows_[static_cast<std::size_t>(l)].size();
            return at;
        }();
        Tokens fresh;
        for (int j = 0; j < size(last); ++j) {
            fresh.push_back(target_.next(text_, visible(all, begin + static_cast<std::size_t>(j))));
        }
        const Tokens committed = accept();
        const bool full = last == N() - 2;
        if (full) {
            for (std::size_t j = 0; j < fresh.size(); ++j) {
                Tokens ngram;
                for (int l = 1; l <= last; ++l)
                    ngram.push_back(rows_[static_cast<std::size_t>(l)][j]);
                ngram.push_back(fresh[j]);
                learn(j == 0 ? text_.back() : rows_[0][j - 1], ngram);
            }
            rows_.push_back(fresh);
            rows_.erase(rows_.begin());
            rows_[0].erase(rows_[0].begin());
        } else {
            for (Tokens& row : rows_) row.erase(row.begin());
            if (last > 0) fresh.erase(fresh.begin());
            rows_.push_back(fresh);
        }
        text_.insert(text_.end(), committed.begin(), committed.end());
        if (o_.pool_from_prompt) learn_text(committed.size());
        return committed;
    }

    [[nodiscard]] std::vector<Tokens> guesses() const {
        const auto known = pool_.find(text_.back());
        if (static_cast<int>(rows_.size()) < N() - 1 || known == pool_.end()) return {};
        return {known->second.rbegin(), known->second.rend()};
    }
    [[nodiscard]] const std::vector<Tokens>& rows() const { return rows_; }
    [[nodiscard]] const std::map<TokenId, std::deque<Tokens>>& pool() const { return pool_; }

private:
    [[nodiscard]] int W() const { return o_.window; }
    [[nodiscard]] int N() const { return o_.ngram; }
    [[nodiscard]] int size(int row) const {
        return static_cast<int>(rows_[static_cast<std::size_t>(row)].size());
    }
    /// The longest guess, row 0 or column that is right so far, and the target's own token.
    [[nodiscard]] Tokens accept() const {
        const std::vector<Input> all = inputs();
        std::set<Tokens> paths;
        for (std::size_t at = 1; at < all.size(); ++at) paths.insert(visible(all, at));
        Tokens committed;
        do committed.push_back(target_.next(text_, committed));
        while (paths.contains(committed));
        return committed;
    }
    void learn(TokenId first, const Tokens& ngram) {
        std::deque<Tokens>& known = pool_[first];
        std::erase(known, ngram);
        known.push_back(ngram);
        if (known.size() > static_cast<std::size_t>(o_.guesses)) known.pop_front();
    }
    /// Of the last `count` tokens each as the last of an n-gram.
    void learn_text(std::size_t count) {
        for (std::size_t end = text_.size() - count; end < text_.size(); ++end) {
            if (end + 1 < static_cast<std::size_t>(N())) continue;
            const auto begin = text_.begin() + static_cast<std::ptrdiff_t>(end) + 1 - N();
            learn(*begin, {begin + 1, begin + N()});
        }
    }

    const ToyText& target_;
    Tokens text_;
    LookaheadOptions o_;
    std::vector<Tokens> rows_;
    std::map<TokenId, std::deque<Tokens>> pool_;  // the newest last
};

std::vector<Tokens> pooled(const NgramPool& pool, TokenId token) {
    return {pool.after(token).rbegin(), pool.after(token).rend()};
}

}  // namespace

TEST_CASE("in 500 rounds rows, window and pool are those of the paper's step under its mask") {
    std::size_t longest = 0;
    for (const LookaheadOptions options :
         {LookaheadOptions{}, LookaheadOptions{.window = 5, .ngram = 3, .guesses = 4},
          LookaheadOptions{.window = 1, .ngram = 4, .guesses = 2},
          LookaheadOptions{.window = 10, .ngram = 4, .guesses = 10, .pool_from_prompt = false}}) {
        CAPTURE(options.window);
        REQUIRE(validate(options));
        const ToyText target{static_cast<std::uint64_t>(options.window), 6, 2};
        const CancelToken never;
        Tokens text{1, 2, 3, 1, 2, 5, 4};
        LookaheadSource source{options};
        source.commit(text);
        PlainLookahead reference{target, text, options};
        for (int round = 0; round < 500; ++round) {
            CAPTURE(round);
            const auto inputs = reference.inputs();
            CHECK(static_cast<std::int32_t>(inputs.size()) <= options.rows());
            std::map<Tokens, bool> paths;
            for (std::size_t at = 1; at < inputs.size(); ++at)
                paths[PlainLookahead::visible(inputs, at)] = true;
            const std::vector<SourceNode> nodes = source.grow({}, options.depth(), never);
            const ToyRound verified = toy_round(target, text, nodes);
            REQUIRE(verified.rows.size() == paths.size());
            for (const auto& [path, name] : verified.rows) {
                CHECK(paths.contains(path));
                CHECK(static_cast<std::int32_t>(path.size()) <= options.depth());
            }
            source.observe(verified.own);
            source.commit(verified.committed);
            CHECK(verified.committed == reference.step());
            longest = std::max(longest, verified.committed.size());
            text.insert(text.end(), verified.committed.begin(), verified.committed.end());
            CHECK(source.window() == reference.rows());
            for (TokenId token = 0; token < 6; ++token) {
                const auto known = reference.pool().find(token);
                const std::vector<Tokens> expected =
                    known == reference.pool().end()
                        ? std::vector<Tokens>{}
                        : std::vector<Tokens>{known->second.begin(), known->second.end()};
                CHECK(pooled(source.pool(), token) == expected);
            }
        }
    }
    CHECK(longest >= 5);  // a full match of four gives N tokens
}

TEST_CASE("with the defaults a batch has 56 rows; more than it can have are refused with values") {
    CHECK(LookaheadOptions{}.rows() == 56);
    CHECK(LookaheadOptions{}.depth() == 9);
    CHECK(validate(LookaheadOptions{.window = 8, .ngram = 5, .guesses = 8}));
    const Status wide = validate(LookaheadOptions{.window = 15, .ngram = 5, .guesses = 15});
    REQUIRE(!wide);
    CHECK(wide.error().what ==
          "window = 15, ngram = 5, guesses = 15: 120 rows in a batch, at most 64");
    CHECK(!validate(LookaheadOptions{.window = 7, .ngram = 2}));
    CHECK(!validate(LookaheadOptions{.window = 33, .ngram = 3, .guesses = 0}));
}

TEST_CASE("without own tokens the window stays; with some of them only those columns are learnt") {
    const CancelToken never;
    const LookaheadOptions options{
        .window = 3, .ngram = 3, .guesses = 3, .pool_from_prompt = false};
    LookaheadSource source{options};
    source.commit(Tokens{1, 2, 3});
    const auto before = source.window();
    (void)source.grow({}, options.depth(), never);
    source.commit(Tokens{4});
    CHECK(source.window() == before);
    const auto round = [&](std::size_t most) {
        const std::vector<SourceNode> nodes = source.grow({}, options.depth(), never);
        std::vector<msg::OwnToken> own;
        for (const SourceNode& node : nodes) {
            if (node.observe != 0 && own.size() < most) own.push_back({node.observe, 9});
        }
        source.observe(own);
        source.observe(own);  // doubled
        source.commit(Tokens{5});
        source.observe(own);  // late
    };
    round(99);
    CHECK(source.window().size() == 2);
    round(1);
    CHECK(source.pool().after(5).size() == 1);
    CHECK(source.window().back().size() == 3);
    CHECK(source.window().front().size() == 2);
}
