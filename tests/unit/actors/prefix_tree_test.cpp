// Shared prefixes: the tree alone, and texts that share its blocks, compared with a plain record of
// what every slot holds.
#include "actors/decoding/prefix_tree.hpp"

#include <cstdlib>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "actors/decoding/slot_allocator.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

namespace {

/// `blocks` blocks, each of one token.
std::vector<TokenId> text_of(const std::vector<TokenId>& blocks) {
    std::vector<TokenId> text;
    for (const TokenId token : blocks) text.insert(text.end(), kKvPageSlots, token);
    return text;
}

RequestSlots computed(KvPages& pages,
                      PrefixTree& tree,
                      const std::vector<TokenId>& text,
                      const std::string& salt = {}) {
    RequestSlots slots = RequestSlots::on_demand(pages, 1024, &tree, salt);
    (void)slots.share(text);
    for (auto p = static_cast<Position>(slots.committed().size());
         p < static_cast<Position>(text.size()); ++p) {
        slots.commit(slots.allocate(p).value());
    }
    slots.publish(text);
    return slots;
}

}  // namespace

TEST_CASE("a text takes the whole blocks that it has in common with one before, and no more") {
    KvPages pages{32 * 16};
    PrefixTree tree{pages};
    const auto first = text_of({1, 2, 3});
    std::vector<KvSlot> kept;
    {
        RequestSlots slots = computed(pages, tree, first);
        kept = slots.committed();
        CHECK(tree.unheld() == 0);
    }
    CHECK(tree.unheld() == 3);
    CHECK(pages.free_pages() == 13);

    std::vector<TokenId> second = text_of({1, 2});
    second.insert(second.end(), {3, 3, 3, 9});
    RequestSlots slots = RequestSlots::on_demand(pages, 1024, &tree, "");
    const RequestSlots::Shared shared = slots.share(second);
    CHECK(shared.cached == 64);
    CHECK(shared.matched == 67);
    CHECK(slots.committed() == std::vector(kept.begin(), kept.begin() + 64));
    CHECK(tree.unheld() == 1);

    RequestSlots other = RequestSlots::on_demand(pages, 1024, &tree, "another salt");
    CHECK(other.share(second).cached == 0);
    CHECK(other.committed().empty());
}

TEST_CASE("of blocks that no text holds the one that was released first goes, deepest first") {
    KvPages pages{32 * 4};
    PrefixTree tree{pages};
    (void)computed(pages, tree, text_of({1, 2}));
    (void)computed(pages, tree, text_of({1, 3}));
    CHECK(tree.unheld() == 3);
    REQUIRE(tree.evict());
    CHECK(tree.blocks_of("", text_of({1, 2})) == 1);
    CHECK(tree.blocks_of("", text_of({1, 3})) == 2);
    REQUIRE(tree.evict());
    CHECK(tree.blocks_of("", text_of({1, 3})) == 1);
    REQUIRE(tree.evict());
    CHECK_FALSE(tree.evict());
    CHECK(pages.free_pages() == 4);
    CHECK(tree.find_root("") == 0);
}

TEST_CASE("a block with a row in a spare slot ends what is shared of a text") {
    KvPages pages{32 * 8};
    PrefixTree tree{pages};
    const auto text = text_of({1, 2, 3});
    {
        RequestSlots slots = RequestSlots::on_demand(pages, 1024, &tree, "");
        for (Position p = 0; p < 96; ++p) {
            const KvSlot home = slots.allocate(p).value();
            if (p != 40) {
                slots.commit(home);
                continue;
            }
            slots.commit(slots.allocate(p).value());
            slots.free(p, home);
        }
        slots.publish(text);
        CHECK(slots.prefix_broken());
    }
    CHECK(tree.blocks_of("", text) == 1);
    CHECK(pages.free_pages() + tree.unheld() == 8);
}

TEST_CASE("after a loss no block is found, and pages come back when their holders end") {
    KvPages pages{32 * 8};
    PrefixTree tree{pages};
    const auto text = text_of({1, 2, 3});
    {
        const RequestSlots holder = computed(pages, tree, text_of({1, 2}));
        (void)computed(pages, tree, text);
        tree.clear();
        CHECK(tree.blocks_of("", text) == 0);
        CHECK(pages.free_pages() == 6);
        CHECK(tree.unheld() == 0);
        const RequestSlots again = computed(pages, tree, text);
        CHECK(tree.blocks_of("", text) == 3);
        CHECK(pages.free_pages() == 3);
    }
    CHECK(pages.free_pages() + tree.unheld() == 8);
    CHECK(tree.blocks_of("", text) == 3);
}

TEST_CASE("rows that were computed before a loss are not shared after it") {
    KvPages pages{32 * 8};
    PrefixTree tree{pages};
    const auto text = text_of({1, 2});
    RequestSlots slots = RequestSlots::on_demand(pages, 1024, &tree, "");
    for (Position p = 0; p < 64; ++p) slots.commit(slots.allocate(p).value());
    SUBCASE("of all segments") {
        tree.clear();
    }
    SUBCASE("of some segments") {
        tree.lose({.from = 2, .to = 2});
    }
    slots.publish(text);
    CHECK(tree.blocks_of("", text) == 0);
}

TEST_CASE("a verdict of before a loss, which comes after it, completes no block") {
    KvPages pages{32 * 8};
    PrefixTree tree{pages};
    const auto text = text_of({1, 2});
    (void)computed(pages, tree, text);
    RequestSlots before = RequestSlots::on_demand(pages, 1024, &tree, "");
    CHECK(before.share(text).complete == 64);
    tree.lose({.from = 2, .to = 2});
    before.publish(text);
    CHECK(tree.blocks_of("", text) == 0);
    RequestSlots after = RequestSlots::on_demand(pages, 1024, &tree, "");
    const RequestSlots::Shared shared = after.share(text);
    CHECK(shared.complete == 0);
    CHECK(shared.lost == LostKeys{.from = 2, .to = 2});
    after.publish(text);  // it has computed them again
    CHECK(tree.blocks_of("", text) == 2);
}

namespace {

/// Of 5,000 steps each. PACELINE_TEST_SEEDS=200: a million steps.
std::uint64_t seeds() {
    const char* wanted = std::getenv("PACELINE_TEST_SEEDS");
    return wanted == nullptr ? 40 : std::strtoull(wanted, nullptr, 10);
}

/// Texts that grow, share, end and run out of pages, in any order. What a slot holds is known: the
/// salt and all tokens up to its position.
class Trace {
public:
    explicit Trace(std::uint64_t seed) : random_{seed} {}

    void step() {
        const auto what = random_() % 100;
        if (what < 4) return open();
        if (texts_.empty()) return;
        Text& text =
            *std::next(texts_.begin(), static_cast<std::ptrdiff_t>(random_() % texts_.size()));
        if (what < 80) return grow(text);
        if (what < 92) return text.slots.publish(text.tokens);
        if (what < 94) return (void)tree_.evict();
        if (what == 94 && random_() % 20 == 0) return tree_.clear();
        if (what < 98) texts_.remove_if([&](const Text& each) { return &each == &text; });
    }

    void check() const {
        std::set<std::int32_t> held;
        for (const Text& text : texts_) {
            std::uint64_t prefix = salt_of(text.salt);
            for (std::size_t p = 0; p < text.slots.committed().size(); ++p) {
                prefix = extended(prefix, text.tokens[p]);
                const KvSlot slot = text.slots.committed()[p];
                held.insert(page_of(slot));
                REQUIRE(holds_.at(slot) == prefix);
            }
        }
        REQUIRE(pages_.free_pages() + tree_.unheld() + static_cast<std::int32_t>(held.size()) <=
                pages_.count());
    }

    void end() {
        texts_.clear();
        REQUIRE(pages_.free_pages() + tree_.unheld() == pages_.count());
        while (tree_.evict()) {
        }
        REQUIRE(pages_.free_pages() == pages_.count());
        REQUIRE(tree_.blocks() == 0);
    }

    std::uint64_t cached = 0;
    std::uint64_t short_of_pages = 0;

private:
    struct Text {
        std::string salt;
        std::vector<TokenId> tokens;
        RequestSlots slots;
    };
    static std::uint64_t salt_of(const std::string& salt) { return 7 + salt.size(); }
    static std::uint64_t extended(std::uint64_t prefix, TokenId token) {
        return (prefix ^ static_cast<std::uint64_t>(token + 1)) * 0x9e3779b97f4a7c15ULL;
    }
    void open() {
        if (texts_.size() == 6) return;
        std::string salt(random_() % 2, 's');
        std::vector<TokenId> blocks;
        for (std::uint64_t i = 1 + random_() % 6; i > 0; --i)
            blocks.push_back(static_cast<TokenId>(random_() % 2));
        std::vector<TokenId> tokens = text_of(blocks);
        tokens.resize(tokens.size() - random_() % 32);
        RequestSlots slots = RequestSlots::on_demand(pages_, 256, &tree_, salt);
        const RequestSlots::Shared shared = slots.share(tokens);
        cached += static_cast<std::uint64_t>(shared.cached);
        REQUIRE(shared.matched >= shared.cached);
        REQUIRE(shared.matched <= static_cast<Position>(tokens.size()));
        texts_.push_back({salt, std::move(tokens), std::move(slots)});
    }
    /// The next token, sometimes beside a sibling that is committed in its place.
    void grow(Text& text) {
        const auto at = static_cast<Position>(text.slots.committed().size());
        if (at == 256) return;
        if (text.tokens.size() == static_cast<std::size_t>(at))
            text.tokens.push_back(static_cast<TokenId>(random_() % 2));
        std::uint64_t prefix = salt_of(text.salt);
        for (Position p = 0; p <= at; ++p)
            prefix = extended(prefix, text.tokens[static_cast<std::size_t>(p)]);
        const std::optional<KvSlot> slot = allocate(text, at);
        if (!slot) return;
        const std::optional<KvSlot> sibling =
            random_() % 40 == 0 ? allocate(text, at) : std::nullopt;
        const KvSlot stays = sibling.value_or(*slot);
        holds_[stays] = prefix;
        text.slots.commit(stays);
        if (!sibling) return;
        holds_[*slot] = 0;
        text.slots.free(at, *slot);
        text.slots.trim();
    }
    std::optional<KvSlot> allocate(Text& text, Position at) {
        const Result<KvSlot> slot = text.slots.allocate(at);
        if (slot) return slot.value();
        ++short_of_pages;
        return std::nullopt;
    }

    std::mt19937_64 random_;
    KvPages pages_{32 * 10};
    PrefixTree tree_{pages_};
    std::list<Text> texts_;
    std::map<KvSlot, std::uint64_t> holds_;
};

}  // namespace

TEST_CASE("over random traces a shared slot always holds the tokens that its text has there") {
    std::uint64_t cached = 0;
    std::uint64_t short_of_pages = 0;
    for (std::uint64_t seed = 1; seed <= seeds(); ++seed) {
        CAPTURE(seed);
        Trace trace{seed};
        for (int step = 0; step < 5000; ++step) {
            trace.step();
            if (step % 20 == 0) trace.check();
        }
        trace.end();
        cached += trace.cached;
        short_of_pages += trace.short_of_pages;
    }
    CHECK(cached > 10'000);
    CHECK(short_of_pages > 100);
}
