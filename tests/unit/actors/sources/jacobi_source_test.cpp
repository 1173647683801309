// JacobiSource against a reference: Jacobi decoding on an array of guesses by position.
#include "actors/draft/jacobi_source.hpp"

#include <doctest/doctest.h>

#include "tests/unit/actors/sources/toy_text.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

/// The guesses stand at positions of the text; in each round all of them are computed again from
/// what stood before them.
class PlainJacobi {
public:
    PlainJacobi(const ToyText& target, Tokens prompt, std::size_t count)
        : target_{target}, text_{std::move(prompt)}, count_{count} {
        const std::size_t known = std::min(count, text_.size());
        Tokens last{text_.end() - static_cast<std::ptrdiff_t>(known), text_.end()};
        while (last.size() < count) last.push_back(last.back());
        line_ = text_;
        line_.insert(line_.end(), last.begin(), last.end());
    }
    [[nodiscard]] Tokens guesses() const {
        return {line_.begin() + static_cast<std::ptrdiff_t>(text_.size()), line_.end()};
    }
    Tokens round() {
        // One parallel update: the token at p from all that stands before p.
        Tokens updated = text_;
        for (std::size_t p = text_.size(); p <= line_.size(); ++p)
            updated.push_back(target_.next(std::span{line_}.first(p)));
        // The tokens up to and including the first one that differs are right.
        std::size_t end = text_.size();
        while (end < line_.size() && line_[end] == updated[end]) ++end;
        Tokens committed{updated.begin() + static_cast<std::ptrdiff_t>(text_.size()),
                         updated.begin() + static_cast<std::ptrdiff_t>(end) + 1};
        text_.insert(text_.end(), committed.begin(), committed.end());
        line_ = updated;
        while (line_.size() < text_.size() + count_) line_.push_back(line_.back());
        return committed;
    }

private:
    const ToyText& target_;
    Tokens text_;
    std::size_t count_;
    Tokens line_;  // text and guesses
};

}  // namespace

TEST_CASE("in 500 rounds the guesses are those of Jacobi decoding by position") {
    std::size_t accepted = 0;
    for (const std::size_t count : {1U, 2U, 5U, 16U, 32U}) {
        CAPTURE(count);
        const ToyText target{count, 5, 2};
        const CancelToken never;
        Tokens text{1, 2, 3};
        JacobiSource source{static_cast<std::int32_t>(count)};
        source.commit(text);
        PlainJacobi reference{target, text, count};
        for (int round = 0; round < 500; ++round) {
            CAPTURE(round);
            const std::vector<SourceNode> nodes =
                source.grow({}, static_cast<std::int32_t>(count), never);
            Tokens proposed;
            for (const SourceNode& node : nodes) {
                CHECK(node.parent == static_cast<std::int32_t>(proposed.size()) - 1);
                CHECK(node.observe != 0);
                proposed.push_back(node.token);
            }
            CHECK(proposed == reference.guesses());
            const ToyRound verified = toy_round(target, text, nodes);
            source.observe(verified.own);
            source.commit(verified.committed);
            CHECK(verified.committed == reference.round());
            accepted += verified.committed.size() - 1;
            text.insert(text.end(), verified.committed.begin(), verified.committed.end());
        }
    }
    CHECK(accepted > 250);
}

TEST_CASE("without own tokens, or with those of an earlier round, guesses stay and move up") {
    const CancelToken never;
    JacobiSource source{4};
    source.commit(Tokens{9, 1, 2, 3, 4});
    const std::vector<SourceNode> nodes = source.grow({}, 4, never);
    source.commit(Tokens{7});
    CHECK(source.grow({}, 4, never).size() == 4);
    CHECK(Tokens{source.guesses().begin(), source.guesses().end()} == Tokens{2, 3, 4, 4});
    std::vector<msg::OwnToken> late;
    for (const SourceNode& node : nodes) late.push_back({.node = node.observe, .token = 8});
    source.observe(late);
    source.commit(Tokens{7});
    CHECK(Tokens{source.guesses().begin(), source.guesses().end()} == Tokens{3, 4, 4, 4});
    source.commit(Tokens{1, 2, 3, 4, 5, 6});  // more than there are guesses: a verdict was missed
    CHECK(source.guesses().size() == 4);
}

TEST_CASE("below its own guesses it goes on with the others, below other tokens with none") {
    const CancelToken never;
    JacobiSource source{4};
    source.commit(Tokens{1, 2, 3, 4});
    CHECK(source.propose(Tokens{1, 2}, 8, never) == Tokens{3, 4});
    CHECK(source.propose(Tokens{1, 2}, 1, never) == Tokens{3});
    CHECK(source.propose(Tokens{2}, 8, never).empty());
    CHECK(source.propose(Tokens{1, 2, 3, 4}, 8, never).empty());
}

TEST_CASE("a tree that is kept while the text goes on by its guesses keeps the names of its rows") {
    const CancelToken never;
    JacobiSource source{4};
    source.commit(Tokens{1, 2, 3, 4});
    const std::vector<SourceNode> nodes = source.grow({}, 4, never);
    REQUIRE(nodes.size() == 4);
    // Two batches are under way below each other, as with pace = "ahead". The first one's verdict
    // makes the second guess the root, which the draft has: it does not ask again.
    source.commit(Tokens{1, 2});
    CHECK(Tokens{source.guesses().begin(), source.guesses().end()} == Tokens{3, 4, 4, 4});
    source.observe(std::vector<msg::OwnToken>{{nodes[2].observe, 50}, {nodes[3].observe, 60}});
    source.commit(Tokens{7});
    // After 3 the target says 50, after 4 then 60.
    CHECK(Tokens{source.guesses().begin(), source.guesses().end()} == Tokens{50, 60, 4, 4});
    // What it grows below its own guesses then has names of the same plan, behind the others.
    const std::vector<SourceNode> more = source.grow(Tokens{50, 60}, 4, never);
    REQUIRE(more.size() == 2);
    source.observe(std::vector<msg::OwnToken>{{more[0].observe, 70}});
    source.commit(Tokens{50, 60});
    CHECK(Tokens{source.guesses().begin(), source.guesses().end()} == Tokens{4, 70, 70, 70});
}

TEST_CASE("names go round: those of the two plans before and of nodes that went are ignored") {
    ObservedRows rows;
    for (int plan = 0; plan < 400; ++plan) {
        CAPTURE(plan);
        const std::uint8_t first = rows.name(0);
        const std::uint8_t last = rows.name(ObservedRows::kRowsMax - 1);
        CHECK(first != 0);
        CHECK(last != 0);
        const std::size_t gone = static_cast<std::size_t>(plan) % 5;
        rows.shift(gone);
        rows.take(std::vector<msg::OwnToken>{{first, 1}, {last, 2}, {0, 3}, {255, 3}});
        CHECK(rows.token(0).has_value() == (gone == 0));
        CHECK(rows.token(ObservedRows::kRowsMax - 1 - gone) == TokenId{2});
        for (int later = 0; later < 2; ++later) {
            rows.plan();
            rows.take(std::vector<msg::OwnToken>{{last, 4}});
            for (std::size_t i = 0; i < ObservedRows::kRowsMax; ++i) CHECK(!rows.token(i));
        }
    }
}
