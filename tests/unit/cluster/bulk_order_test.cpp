#include "runtime/cluster/bulk_order.hpp"

#include <deque>
#include <map>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/ipc/seeded_random.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

remote::StageKey stage(std::uint16_t id) {
    return {StageId{id}, Epoch{1}};
}

/// What reached a stage: the number of a Begin, or of a frame.
struct Item {
    bool begin = false;
    std::uint64_t number = 0;
    friend bool operator==(const Item&, const Item&) = default;
};

}  // namespace

TEST_CASE(
    "nothing passes a Begin that is on the other connection, and frames stay in order, 2,000 "
    "seeds") {
    for (std::uint64_t seed = 1; seed <= 2'000; ++seed) {
        CAPTURE(seed);
        SeededRandom random{seed};
        BulkOrder order;
        std::deque<std::pair<std::uint16_t, remote::Frame>> first;  // with its stage
        std::deque<std::uint16_t> second;
        std::map<std::uint16_t, std::uint64_t> begins;
        std::map<std::uint16_t, std::vector<std::uint64_t>> begins_before;  // each frame
        std::map<std::uint16_t, std::vector<Item>> reached;
        std::map<std::uint16_t, std::uint64_t> frames;
        const auto pass = [&](std::uint16_t id, const remote::Frame& frame) {
            reached[id].push_back({false, std::get<remote::EdgeFrame>(frame).edge});
        };
        for (int i = 0; i < 200; ++i) {
            const auto id = static_cast<std::uint16_t>(1 + random.below(3));
            switch (random.below(4)) {
                case 0:
                    first.emplace_back(id, remote::BulkMark{stage(id), ++begins[id]});
                    second.push_back(id);
                    break;
                case 1: {
                    remote::EdgeFrame frame;
                    frame.edge = static_cast<std::uint32_t>(++frames[id]);
                    first.emplace_back(id, frame);
                    begins_before[id].push_back(begins[id]);
                    break;
                }
                case 2: {
                    if (first.empty()) break;
                    const auto [to, frame] = first.front();
                    first.pop_front();
                    if (const auto* mark = std::get_if<remote::BulkMark>(&frame)) {
                        order.mark(*mark);
                    } else if (order.holds(stage(to))) {
                        order.hold(stage(to), frame);
                    } else {
                        pass(to, frame);
                    }
                    break;
                }
                default: {
                    if (second.empty()) break;
                    const std::uint16_t to = second.front();
                    second.pop_front();
                    reached[to].push_back({true, 0});
                    for (const BulkOrder::Held& held : order.arrived(stage(to)))
                        pass(to, held.frame);
                }
            }
        }
        for (const auto& [id, items] : reached) {
            std::uint64_t come = 0;
            std::uint64_t last = 0;
            for (const Item& item : items) {
                if (item.begin) {
                    ++come;
                    continue;
                }
                REQUIRE(item.number == ++last);
                REQUIRE(come >= begins_before[id][item.number - 1]);
            }
        }
    }
}

TEST_CASE("other stages do not wait, and a held frame keeps the bytes that it borrowed") {
    BulkOrder order;
    CHECK_FALSE(order.holds_any());
    order.mark({stage(1), 1});
    CHECK(order.holds(stage(1)));
    CHECK_FALSE(order.holds(stage(2)));
    {
        const std::vector<std::byte> bytes{std::byte{7}, std::byte{8}};
        remote::EdgeFrame frame;
        frame.payload = bytes;
        order.hold(stage(1), frame);
        remote::TensorPart part;
        part.bytes = std::span{bytes}.first(1);
        order.hold(stage(1), part);
    }
    const std::deque<BulkOrder::Held> held = order.arrived(stage(1));
    REQUIRE(held.size() == 2);
    CHECK(std::get<remote::EdgeFrame>(held[0].frame).payload[1] == std::byte{8});
    CHECK(std::get<remote::TensorPart>(held[1].frame).bytes[0] == std::byte{7});
    CHECK_FALSE(order.holds_any());
}

TEST_CASE("memory that a held message names is dropped behind it, other memory at once") {
    BulkOrder order;
    order.mark({stage(1), 1});
    remote::StageControl rewire;
    rewire.who = stage(1);
    rewire.files = {20, 21};
    order.hold(stage(1), rewire);
    CHECK(order.to_drop({{20, 30}}).ids == std::vector<std::uint64_t>{30});
    CHECK(order.to_drop({{21}}).ids.empty());
    CHECK(order.to_drop().ids.empty());
    CHECK(order.arrived(stage(1)).size() == 1);
    CHECK(order.to_drop().ids == std::vector<std::uint64_t>{20, 21});
    CHECK(order.to_drop().ids.empty());
}
