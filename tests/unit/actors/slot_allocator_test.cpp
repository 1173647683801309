#include "actors/decoding/slot_allocator.hpp"

#include <map>
#include <random>
#include <set>
#include <vector>

#include <doctest/doctest.h>

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose

TEST_CASE("a chain gets home slots: the offset of its position, one page per block") {
    KvPages pages{320};
    RequestSlots slots = RequestSlots::make(pages, 100).value();
    std::set<std::int32_t> pages_of_blocks;
    for (Position p = 0; p < 100; ++p) {
        const KvSlot slot = slots.allocate(p).value();
        CHECK(offset_of(slot) == p % kKvPageSlots);
        if (p % kKvPageSlots != 0) CHECK(page_of(slot) == page_of(slots.committed().back()));
        pages_of_blocks.insert(page_of(slot));
        slots.commit(slot);
    }
    CHECK(pages_of_blocks.size() == 4);
    CHECK(pages.free_pages() == 6);
}

TEST_CASE("a second row of one position gets a spare slot, and neither is moved by a commit") {
    KvPages pages{320};
    RequestSlots slots = RequestSlots::make(pages, 100).value();
    const KvSlot home = slots.allocate(0).value();
    const KvSlot sibling = slots.allocate(0).value();
    CHECK(home != sibling);
    CHECK(page_of(sibling) != page_of(home));
    slots.commit(sibling);
    slots.free(0, home);
    CHECK(slots.committed() == std::vector<KvSlot>{sibling});
    // The home offset of a position that is committed elsewhere serves as a spare.
    const KvSlot next = slots.allocate(1).value();
    CHECK(next == home + 1);
    const KvSlot spare = slots.allocate(1).value();
    CHECK(spare == home);
}

TEST_CASE("a home offset that was freed before its sibling was committed serves as a spare too") {
    KvPages pages{96};
    RequestSlots slots = RequestSlots::make(pages, 32).value();
    const KvSlot home = slots.allocate(0).value();
    const KvSlot sibling = slots.allocate(0).value();
    slots.free(0, home);
    slots.commit(sibling);
    std::set<KvSlot> spares;
    for (int i = 0; i < 32; ++i) spares.insert(slots.allocate(1).value());
    CHECK(spares.contains(home));
}

TEST_CASE("a cache that is too small is refused at the start, with both numbers") {
    KvPages pages{96};
    RequestSlots first = RequestSlots::make(pages, 64).value();
    const Result<RequestSlots> second = RequestSlots::make(pages, 64);
    REQUIRE_FALSE(second);
    CHECK(second.error().code == Errc::OutOfMemory);
    CHECK(second.error().what.find("needs 2 pages") != std::string::npos);
    CHECK(second.error().what.find("only 1 of 3") != std::string::npos);
}

TEST_CASE("spares never take a page that a request has reserved") {
    KvPages pages{96};
    RequestSlots first = RequestSlots::make(pages, 64).value();
    RequestSlots second = RequestSlots::make(pages, 32).value();
    CHECK(first.allocate(0));
    const Result<KvSlot> sibling = first.allocate(0);
    REQUIRE_FALSE(sibling);
    CHECK(sibling.error().code == Errc::OutOfMemory);
    CHECK(second.allocate(0));
    CHECK(first.allocate(40));
}

TEST_CASE("a position outside the context is refused") {
    KvPages pages{96};
    RequestSlots slots = RequestSlots::make(pages, 40).value();
    CHECK_FALSE(slots.allocate(40));
    CHECK_FALSE(slots.allocate(-1));
}

TEST_CASE("on demand pages are taken as a text grows, and given back when no row uses them") {
    KvPages pages{32 * 8};
    {
        RequestSlots slots = RequestSlots::on_demand(pages, 200);
        CHECK(pages.free_pages() == 8);
        for (Position p = 0; p < 40; ++p) slots.commit(slots.allocate(p).value());
        CHECK(pages.free_pages() == 6);
        const KvSlot ahead = slots.allocate(64).value();
        const KvSlot home = slots.allocate(40).value();
        const KvSlot sibling = slots.allocate(40).value();
        CHECK(pages.free_pages() == 4);
        const std::uint64_t before = pages.releases();
        slots.free(64, ahead);
        slots.free(40, sibling);
        slots.trim();
        CHECK(pages.free_pages() == 6);
        CHECK(pages.releases() == before + 2);
        slots.commit(home);
        slots.trim();
        CHECK(pages.free_pages() == 6);
    }
    CHECK(pages.free_pages() == 8);
}

TEST_CASE("on demand a candidate leaves pages to others, and its text's next token a slot") {
    KvPages pages{32 * 2};
    RequestSlots slots = RequestSlots::on_demand(pages, 64);
    for (Position p = 0; p < 31; ++p) slots.commit(slots.allocate(p).value());
    const KvSlot root = slots.allocate(31).value();
    const SlotRule candidate{.pages_left = 1, .leaves_one_slot = true};
    CHECK_FALSE(slots.allocate(32, candidate));
    CHECK(pages.free_pages() == 1);
    const KvSlot sibling = slots.allocate(31).value();  // takes the last page, for spares
    slots.commit(sibling);
    slots.free(31, root);
    // No page is left for the block of position 32: spares hold its rows, but for the last one.
    int found = 0;
    while (slots.allocate(32, candidate).ok()) ++found;
    CHECK(found == 31);
    CHECK(slots.allocate(32).ok());
    CHECK_FALSE(slots.allocate(32));
}

TEST_CASE("no slot is handed out twice, and all pages come back, under random trees and cuts") {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        KvPages pages{32 * 40};
        {
            std::vector<RequestSlots> requests;
            for (int i = 0; i < 3; ++i) {
                requests.push_back(seed % 2 == 0 ? RequestSlots::make(pages, 300).value()
                                                 : RequestSlots::on_demand(pages, 300));
            }
            std::map<KvSlot, int> owner;                           // every slot in use
            std::vector<std::multimap<Position, KvSlot>> live(3);  // allocated, not committed
            for (int step = 0; step < 1500; ++step) {
                const auto r = static_cast<std::size_t>(random() % 3);
                RequestSlots& slots = requests[r];
                const auto next = static_cast<Position>(slots.committed().size());
                const auto action = random() % 10;
                if (action < 6) {
                    const Position p = next + static_cast<Position>(random() % 5);
                    const Result<KvSlot> slot = slots.allocate(p);
                    if (!slot) continue;
                    REQUIRE(slot.value() >= 0);
                    REQUIRE(slot.value() < 32 * 40);
                    REQUIRE(owner.emplace(slot.value(), static_cast<int>(r)).second);
                    live[r].emplace(p, slot.value());
                } else if (action < 9) {
                    // A verdict: one row of the next position stands, some others are dropped.
                    const auto stands = live[r].find(next);
                    if (stands == live[r].end()) continue;
                    slots.commit(stands->second);
                    live[r].erase(stands);
                    for (auto it = live[r].begin(); it != live[r].end();) {
                        if (it->first > next && random() % 2 == 0) {
                            ++it;
                            continue;
                        }
                        slots.free(it->first, it->second);
                        owner.erase(it->second);
                        it = live[r].erase(it);
                    }
                    slots.trim();
                } else if (random() % 8 == 0 && next > 0) {
                    for (const auto& [p, slot] : live[r]) {
                        slots.free(p, slot);
                        owner.erase(slot);
                    }
                    live[r].clear();
                    const auto length =
                        static_cast<Position>(random() % static_cast<std::uint64_t>(next));
                    for (Position p = length; p < next; ++p) {
                        owner.erase(slots.committed()[static_cast<std::size_t>(p)]);
                    }
                    slots.cut(length);
                    slots.trim();
                }
                std::int32_t held = pages.count() - pages.unreserved_pages();
                for (const RequestSlots& each : requests) held -= each.pages_held();
                REQUIRE(held == 0);
                std::size_t in_use = 0;
                for (const RequestSlots& each : requests)
                    in_use += static_cast<std::size_t>(each.in_use());
                REQUIRE(in_use == owner.size());
            }
        }
        CHECK(pages.free_pages() == 40);
        CHECK(pages.reserve(40));
    }
}
