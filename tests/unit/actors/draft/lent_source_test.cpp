#include "actors/draft/request/lent_source.hpp"

#include <array>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

/// What a source was told.
struct Received {
    std::vector<TokenId> text;
    int own = 0;
};

struct ListeningSource final : DraftSource {
    explicit ListeningSource(Received& of) : received{of} {}
    [[nodiscard]] DraftCost cost() const override { return DraftCost::Compute; }
    void commit(std::span<const TokenId> tokens) override {
        received.text.insert(received.text.end(), tokens.begin(), tokens.end());
    }
    void observe(std::span<const msg::OwnToken> own) override {
        received.own += static_cast<int>(own.size());
    }
    Received& received;
};

constexpr std::array<msg::OwnToken, 2> kOwnTokens{
    {{.node = 1, .token = 5}, {.node = 2, .token = 6}}};

}  // namespace

TEST_CASE("a lent source receives what was committed when it is back, and no own tokens") {
    Received received;
    LentSource source{std::make_unique<ListeningSource>(received), std::vector<TokenId>{1, 2}};
    CHECK(received.text == std::vector<TokenId>{1, 2});
    source.observe(kOwnTokens);
    CHECK(received.own == 2);

    source.lend(0);
    source.commit(std::vector<TokenId>{3});
    source.commit(std::vector<TokenId>{4, 5});
    source.observe(kOwnTokens);
    CHECK(received.text == std::vector<TokenId>{1, 2});
    source.give_back();
    CHECK(received.text == std::vector<TokenId>{1, 2, 3, 4, 5});
    CHECK(received.own == 2);
    source.commit(std::vector<TokenId>{6});
    CHECK(received.text.back() == 6);
}

TEST_CASE("a source is due once after each commit, also after one while it was lent") {
    Received received;
    LentSource source{std::make_unique<ListeningSource>(received), std::vector<TokenId>{1}};
    CHECK(source.take_due());
    CHECK_FALSE(source.take_due());
    source.lend(0);
    source.commit(std::vector<TokenId>{2});
    source.give_back();
    CHECK(source.take_due());
    CHECK_FALSE(source.take_due());

    LentSource none{nullptr, std::vector<TokenId>{1}};
    none.commit(std::vector<TokenId>{2});
    none.observe(kOwnTokens);
    CHECK_FALSE(none);
    CHECK_FALSE(none.take_due());
}

TEST_CASE("the job that has a source is cancelled once its node is dropped") {
    Received received;
    LentSource source{std::make_unique<ListeningSource>(received), std::vector<TokenId>{1}};
    DraftTree tree{8};
    tree.plant(1, 0);
    const DraftNodeId kept = tree.add(tree.root().id, 2, -0.1F, msg::Origin::Trunk).value();
    const DraftNodeId dropped = tree.add(tree.root().id, 3, -0.2F, msg::Origin::Trunk).value();
    const DraftNodeId below = tree.add(kept, 4, -0.1F, msg::Origin::Trunk).value();

    source.lend(below);
    (void)tree.follow(std::vector<TokenId>{2});
    source.followed(tree);
    CHECK_FALSE(source.cancel().cancelled());
    source.give_back();

    source.followed(tree);
    source.lend(dropped);
    source.followed(tree);
    CHECK(source.cancel().cancelled());
    source.give_back();
    source.lend(below);
    CHECK_FALSE(source.cancel().cancelled());  // the next job is another one
}
