#include <fcntl.h>

#include <doctest/doctest.h>

#include "runtime/wiring.hpp"

using namespace paceline;

namespace {

std::vector<OwnedFd> copies(const std::vector<int>& files) {
    std::vector<OwnedFd> own;
    for (const int fd : files) own.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    return own;
}

const std::vector<StageSpec> kStages{{StageId{0}, Epoch{1}, 0}, {StageId{1}, Epoch{4}, 20}};
const std::vector<EdgeSpec> kEdges{{StageId{1}, StageId{0}, 8, 2, 3, 256}};

}  // namespace

TEST_CASE("both ends of an edge attach to the same memory, each from its side") {
    const WiringPlan plan = WiringPlan::create(kStages, kEdges).value();
    Wiring stage = plan.attach(StageId{1}).value();
    Wiring conductor = plan.attach(StageId{0}).value();
    CHECK(stage.spin_micros == 20);
    CHECK(stage.epoch == Epoch{4});
    REQUIRE(stage.out.size() == 1);
    REQUIRE(conductor.in.size() == 1);
    const msg::Stop stop{};
    CHECK(stage.out[0].ring.try_push(4, std::as_bytes(std::span{&stop, 1})) == Push::Ok);
    CHECK(conductor.in[0].ring.has_frame());
    const PoolRef slot = stage.out[0].pool->acquire().value();
    stage.out[0].pool->publish(slot, 256);
    CHECK(conductor.in[0].pool->view(slot, 256).ok());
}

TEST_CASE("a plan that makes no sense is refused") {
    const auto refused = [](std::vector<EdgeSpec> edges) {
        return !WiringPlan::create(kStages, edges).ok();
    };
    CHECK(refused({{StageId{1}, StageId{7}, 8, 2, 0, 0}}));
    CHECK(refused({{StageId{7}, StageId{1}, 8, 2, 0, 0}}));
    CHECK(refused({{StageId{1}, StageId{1}, 8, 2, 0, 0}}));
    CHECK(refused({kEdges[0], kEdges[0]}));
    CHECK(refused({{StageId{1}, StageId{0}, 9, 2, 0, 0}}));
    CHECK(refused({{StageId{1}, StageId{0}, 8, 8, 0, 0}}));
}

TEST_CASE("a letter whose numbers or files are wrong attaches to nothing") {
    const WiringPlan plan = WiringPlan::create(kStages, kEdges).value();
    const WiringPlan::Letter letter = plan.letter_for(StageId{0});
    control::Wire wire = letter.wire;
    Epoch epoch{1};
    std::vector<int> files = letter.files;
    SUBCASE("a file that does not exist") {
        wire.edges[0].ring_file = 99;
    }
    SUBCASE("a bell instead of a ring") {
        wire.edges[0].ring_file = wire.bell_file;
    }
    SUBCASE("a ring instead of a pool") {
        wire.edges[0].pool_file = wire.edges[0].ring_file;
    }
    SUBCASE("another incarnation's ring") {
        wire.edges[0].peer_epoch = Epoch{5};
    }
    SUBCASE("no files") {
        files.clear();
    }
    const Result<Wiring> wiring = attach_wiring(StageId{0}, epoch, wire, copies(files));
    REQUIRE_FALSE(wiring.ok());
    CHECK(wiring.error().code == Errc::Protocol);
}
