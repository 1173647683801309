// Drawn siblings one part at a time: the draw, the rule beside deterministic candidates, the
// dispatcher's tree and scheduler, and the checks of the messages.
#include "actors/decoding/drawn_siblings.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "actors/protocol/message_checks.hpp"
#include "actors/segment/batch_scheduler.hpp"
#include "actors/segment/segment_run.hpp"
#include "tests/unit/actors/rejection/every_way.hpp"

using namespace paceline;           // NOLINT(google-build-using-namespace): a test reads like prose
using namespace paceline::testing;  // NOLINT(google-build-using-namespace): same

namespace {

std::vector<msg::TokenWeight> support_of(const Weights& q) {
    std::vector<msg::TokenWeight> support;
    for (std::size_t i = 0; i < q.size(); ++i) {
        if (q[i] > 0.0) support.push_back({static_cast<TokenId>(i), static_cast<float>(q[i])});
    }
    return support;
}

/// The token that the rule chooses after `deterministic` were chosen in view of what was drawn.
std::vector<TokenId> chosen(const Weights& p,
                            const DrawnSiblings& drawn,
                            const std::vector<TokenId>& deterministic,
                            Chance& chance) {
    Weights left = p;
    Weights q;
    drawn.spread(q, p.size());
    const std::vector<TokenId> tokens = drawn.tokens();
    return {choose(left, {.tokens = tokens, .q = q, .deterministic = deterministic}, chance).token};
}

msg::Draw draw_at(Position root_position, TokenId root, const std::vector<TokenId>& path) {
    msg::Draw draw{};
    draw.route = {RequestId{1}, Attempt{1}, Epoch{1}};
    draw.root_position = root_position;
    draw.root_token = root;
    draw.depth = static_cast<std::uint32_t>(path.size());
    std::copy(path.begin(), path.end(), draw.path.begin());
    draw.support = 2;
    draw.drawn = 1;
    draw.tokens[0] = {4, 0.25F};
    draw.tokens[1] = {2, 0.5F};
    return draw;
}

/// A scheduler with one request whose prompt is the token 3.
struct Scene {
    Scene() {
        const BeginPayload request{{.text = {3}, .max_tokens = 20, .context = 64}};
        state = std::make_shared<RequestState>(RequestId{1}, Attempt{1}, request, TreeRole::Names);
        scheduler.begin(state, Micros{0});
    }
    void propose(Position root, TokenId token, const std::vector<TokenId>& chain) {
        msg::Proposal proposal{};
        proposal.route = {RequestId{1}, Attempt{1}, Epoch{1}};
        proposal.root_position = root;
        proposal.root_token = token;
        proposal.state = msg::ProposalState::Complete;
        for (const TokenId next : chain) {
            const auto parent = static_cast<std::int16_t>(static_cast<int>(proposal.count) - 1);
            proposal.nodes[proposal.count++] = {next, parent, msg::Origin::Trunk, 0, -0.1F};
        }
        scheduler.propose(proposal, ProposalSender::Draft, Micros{0});
    }
    void commit(TokenId token) {
        msg::Verdict verdict{};
        verdict.base = static_cast<Position>(state->text().size());
        verdict.count = 1;
        verdict.tokens[0] = token;
        const Result<TreeUpdate> step = state->apply(verdict);
        REQUIRE(step);
        scheduler.follow(RequestId{1}, step.value(), Micros{0});
    }
    [[nodiscard]] const TreeNode* node(const std::vector<TokenId>& path) const {
        const TreeNode* at = &state->tree().root();
        for (const TokenId token : path)
            at = at == nullptr ? at : state->tree().child(at->id, token);
        return at;
    }
    [[nodiscard]] bool bound(const std::vector<TokenId>& path) const {
        const TreeNode* at = node(path);
        return at != nullptr && at->drawn_below != nullptr;
    }

    std::shared_ptr<RequestState> state;
    BatchScheduler scheduler{{.start = StartRule::AtOnce}, 256};
};

}  // namespace

TEST_CASE("siblings are drawn from q without putting back, and stand before the rest of it") {
    const std::vector<msg::TokenWeight> support{{7, 1.0F}, {2, 2.0F}, {5, 3.0F}};
    const Distribution distribution = distribution_of([&](Chance& chance) {
        const DrawnSiblings drawn = draw_siblings(support, 2, chance);
        REQUIRE(drawn.support.size() == 3);
        for (const msg::TokenWeight& one : support)
            REQUIRE(std::count(drawn.support.begin(), drawn.support.end(), one) == 1);
        REQUIRE(drawn.has(drawn.support[1].token));
        REQUIRE_FALSE(drawn.has(drawn.support[2].token));
        return drawn.tokens();
    });
    CHECK(distribution.size() == 6);
    CHECK(distribution.at({7, 2}) == doctest::Approx(1.0 / 6 * 2 / 5));
    CHECK(distribution.at({5, 7}) == doctest::Approx(3.0 / 6 * 1 / 3));
    CounterChance chance{1, 2, CounterChance::Use::Drawing};
    CHECK(draw_siblings(support, 9, chance).drawn == 3);
}

TEST_CASE("draws and acceptance have random words of their own") {
    int equal = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        CounterChance decides{seed, 9};
        CounterChance draws{seed, 9, CounterChance::Use::Drawing, 4};
        CounterChance other{seed, 9, CounterChance::Use::Drawing, 5};
        CounterChance same{seed, 9, CounterChance::Use::Drawing, 4};
        const std::vector<double> weights(64, 1.0);
        const std::size_t drawn = draws.pick(weights);
        equal += drawn == decides.pick(weights) ? 1 : 0;
        equal += drawn == other.pick(weights) ? 1 : 0;
        CHECK(drawn == same.pick(weights));
    }
    CHECK(equal < 30);  // 6 are expected
}

TEST_CASE(
    "deterministic candidates after drawn ones leave the distribution as it is, whatever they "
    "depend on") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        const std::size_t vocab = 4 + seed % 3;
        const Weights p = random_weights(random, vocab);
        const Weights q = random_weights(random, vocab);
        const std::size_t count = 1 + seed % 3;
        const Distribution distribution = distribution_of([&](Chance& chance) {
            const DrawnSiblings drawn = draw_siblings(support_of(q), count, chance);
            // The first repeats a sibling, the second follows from what was drawn.
            const TokenId last = drawn.tokens().back();
            std::vector<TokenId> deterministic{last};
            if (seed % 2 == 0) deterministic.push_back((last + 1) % static_cast<TokenId>(vocab));
            if (deterministic.size() == 2 && deterministic[1] == deterministic[0])
                deterministic.pop_back();
            return chosen(p, drawn, deterministic, chance);
        });
        REQUIRE(distance(distribution, distribution_of_weights(p)) < 1e-9);
    }
}

TEST_CASE(
    "the enumeration sees deterministic candidates that depend on a draw and are tested before "
    "it") {
    const Weights p{1, 2, 3, 4};
    const Weights q{4, 3, 2, 1};
    const Distribution distribution = distribution_of([&](Chance& chance) {
        const DrawnSiblings drawn = draw_siblings(support_of(q), 1, chance);
        const auto deterministic = static_cast<std::size_t>((drawn.tokens().front() + 1) % 4);
        if (chance.happens(p[deterministic] / 10.0))
            return std::vector{static_cast<TokenId>(deterministic)};
        Weights left = p;
        left[deterministic] = 0.0;
        return chosen(left, drawn, {}, chance);
    });
    CHECK(distance(distribution, distribution_of_weights(p)) > 0.01);
}

TEST_CASE("the enumeration sees a drawn candidate that is left out because it is improbable") {
    const Weights p{1, 2, 3, 4};
    const Weights q{4, 3, 2, 1};
    const Distribution distribution = distribution_of([&](Chance& chance) {
        const DrawnSiblings drawn = draw_siblings(support_of(q), 1, chance);
        if (drawn.support.front().weight >= 3.0F) return chosen(p, drawn, {}, chance);
        return std::vector{static_cast<TokenId>(chance.pick(p))};
    });
    CHECK(distance(distribution, distribution_of_weights(p)) > 0.01);
}

TEST_CASE("a node takes what was drawn after it once, and not after it was sent") {
    TokenTree tree{TreeRole::Names, 100};
    tree.plant(3, 0);
    const NodeId node = tree.grow(tree.root().id, 5, -1.0F).value();
    const auto drawn =
        std::make_shared<const DrawnSiblings>(DrawnSiblings{.support = {{4, 1.0F}}, .drawn = 1});
    const auto again = std::make_shared<const DrawnSiblings>(*drawn);
    CHECK(tree.take_drawn(node, drawn));
    CHECK_FALSE(tree.take_drawn(node, again));
    CHECK(tree.find(node)->drawn_below == drawn);
    (void)tree.send(tree.root().id, 0);
    CHECK_FALSE(tree.take_drawn(tree.root().id, again));
    CHECK(tree.root().drawn_below == nullptr);
    (void)tree.apply({}, 5).value();  // the node becomes the root
    CHECK(tree.root().drawn_below == drawn);
}

TEST_CASE("in a full tree a node keeps its place after its children were drawn") {
    TokenTree tree{TreeRole::Names, 4};
    tree.plant(3, 0);
    const NodeId parent = tree.grow(tree.root().id, 5, -8.0F).value();
    const NodeId node = tree.grow(parent, 6, -1.0F).value();
    const NodeId other = tree.grow(tree.root().id, 7, -7.0F).value();
    const auto drawn =
        std::make_shared<const DrawnSiblings>(DrawnSiblings{.support = {{4, 1.0F}}, .drawn = 1});
    REQUIRE(tree.take_drawn(node, drawn));
    REQUIRE(tree.grow(tree.root().id, 8, -1.0F));
    CHECK(tree.find(other) == nullptr);  // more probable than the two, but it made room
    CHECK(tree.find(parent) != nullptr);
    CHECK(tree.find(node) != nullptr);
}

TEST_CASE("a draw finds its node through the text that was committed since its root") {
    Scene scene;
    scene.propose(0, 3, {1, 4, 2});
    scene.scheduler.take_drawn(draw_at(0, 3, {1, 4}));
    CHECK(scene.bound({1, 4}));
    REQUIRE(scene.scheduler.next_batch(Micros{0}));
    scene.commit(1);
    CHECK(scene.bound({4}));
    scene.propose(0, 3, {1, 0});
    scene.scheduler.take_drawn(draw_at(0, 3, {1, 0}));
    CHECK(scene.bound({0}));
    for (const msg::Draw& other : {draw_at(0, 3, {}), draw_at(0, 3, {2, 0}), draw_at(0, 2, {1}),
                                   draw_at(0, 3, {1, 2, 2}), draw_at(1, 2, {})}) {
        scene.scheduler.take_drawn(other);
    }
    CHECK_FALSE(scene.bound({}));  // sent in the first batch, and none of these was about it
}

TEST_CASE(
    "a draw for a root that is still to come waits for it, and for what was proposed below it") {
    Scene scene;
    REQUIRE(scene.scheduler.next_batch(Micros{0}));  // the root alone
    scene.propose(1, 2, {4});
    scene.scheduler.take_drawn(draw_at(1, 2, {}));
    scene.scheduler.take_drawn(draw_at(1, 2, {4}));
    scene.scheduler.take_drawn(draw_at(1, 2, {0}));
    scene.commit(2);
    CHECK(scene.bound({}));
    CHECK(scene.bound({4}));
    CHECK(scene.node({0}) == nullptr);
}

TEST_CASE("a draw for a row that was sent comes too late") {
    Scene scene;
    scene.propose(0, 3, {1, 4});
    scene.scheduler.take_drawn(draw_at(0, 3, {1, 4}));
    CHECK(scene.bound({1, 4}));
    REQUIRE(scene.scheduler.next_batch(Micros{0}));
    scene.scheduler.take_drawn(draw_at(0, 3, {}));
    scene.scheduler.take_drawn(draw_at(0, 3, {1}));
    CHECK_FALSE(scene.bound({}));
    CHECK_FALSE(scene.bound({1}));
}

TEST_CASE("a draw that cannot have been drawn is refused with field and value") {
    const MessageLimits limits{.vocab_size = 10, .kv_slots = 100, .context = 100};
    const auto refused = [&](const msg::Draw& draw, const std::string& says) {
        const Status status = check_message(draw, limits);
        REQUIRE_FALSE(status);
        CHECK_MESSAGE(status.error().what.find(says) != std::string::npos, status.error().what);
    };
    const msg::Draw good = draw_at(5, 3, {1, 2});
    CHECK(check_message(good, limits));
    const auto changed = [&](const auto& change) {
        msg::Draw draw = good;
        change(draw);
        return draw;
    };
    refused(changed([](auto& d) { d.drawn = 0; }), "drawn = 0");
    refused(changed([](auto& d) { d.drawn = 3; }), "drawn = 3");
    refused(changed([](auto& d) { d.support = 0; }), "support = 0");
    refused(changed([](auto& d) { d.support = kDrawnSupportMax + 1; }), "support = 33");
    refused(changed([](auto& d) { d.depth = kGammaMax + 1; }), "depth = 33");
    refused(changed([](auto& d) { d.path[1] = 10; }), "tokens[1] = 10");
    refused(changed([](auto& d) { d.root_token = -1; }), "root_token = -1");
    refused(changed([](auto& d) { d.root_position = 100; }), "root_position = 100");
    refused(changed([](auto& d) { d.tokens[1].token = 10; }), "token 1 = 10");
    refused(changed([](auto& d) { d.tokens[1].token = 4; }), "token 4 twice");
    refused(changed([](auto& d) { d.tokens[0].weight = 0.0F; }), "weight 0 = 0");
    refused(changed([](auto& d) { d.tokens[0].weight = std::numeric_limits<float>::quiet_NaN(); }),
            "weight 0 = nan");
}

TEST_CASE("the draws of a batch belong to its rows, and come back as they were sent") {
    const MessageLimits limits{.vocab_size = 10, .kv_slots = 100, .context = 100};
    msg::Batch batch{.epoch = Epoch{1}, .tensor = 0, .tensor_rows = 3};
    batch.parts.push_back({.request = RequestId{1},
                           .attempt = Attempt{1},
                           .batch = BatchId{0},
                           .kind = msg::BatchKind::Verify,
                           .base = 4,
                           .rows = 3,
                           .hold = 0});
    batch.rows.resize(3);
    batch.draws = {{.row = 0, .support = 2, .drawn = 1}, {.row = 2, .support = 1, .drawn = 1}};
    batch.drawn_tokens = {{7, 0.5F}, {3, 0.25F}, {9, 1.0F}};
    const msg::Batch back = msg::decode_batch(msg::frame_of(batch)).value();
    REQUIRE(check_message(back, limits));
    const std::vector<DrawnSiblingsPtr> drawn = drawn_below(back, 0, 3);
    REQUIRE(drawn.size() == 3);
    CHECK(*drawn[0] == DrawnSiblings{.support = {{7, 0.5F}, {3, 0.25F}}, .drawn = 1});
    CHECK(drawn[1] == nullptr);
    CHECK(*drawn[2] == DrawnSiblings{.support = {{9, 1.0F}}, .drawn = 1});
    CHECK(*drawn_below(back, 1, 2).back() == *drawn[2]);
    CHECK(drawn_below(back, 1, 1).empty());
    const auto refused = [&](const auto& change, const std::string& says) {
        msg::Batch bad = batch;
        change(bad);
        const Status status = check_message(bad, limits);
        REQUIRE_FALSE(status);
        CHECK_MESSAGE(status.error().what.find(says) != std::string::npos, status.error().what);
    };
    refused([](auto& w) { w.draws[1].row = 3; }, "draw 1 has row = 3");
    refused([](auto& w) { w.draws[1].row = 0; }, "draw 1 has row = 0");
    refused([](auto& w) { w.draws[1].support = 2; }, "draw 1 has support = 2");
    refused([](auto& w) { w.draws.pop_back(); }, "without a draw = 1");
    refused([](auto& w) { w.draws[0].drawn = 3; }, "draw 0 has drawn = 3");
    refused([](auto& w) { w.drawn_tokens[2].token = 10; }, "draw 1 has token 0 = 10");
}
