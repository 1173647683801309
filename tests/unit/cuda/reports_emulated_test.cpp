// What is wrong with a kernel is reported by the emulated device, by name and place.
#include <cstddef>
#include <string>
#include <vector>

#include "tests/unit/cuda/emulated_fixture.hpp"

namespace paceline::cuda {
namespace {

struct MischiefArgs {
    int kind;
    float* out;
};

constexpr int kEndsEarly = 0;
constexpr int kOtherBarrier = 1;
constexpr int kOtherOperation = 2;
constexpr int kBlockAndWarp = 3;
constexpr int kPastShared = 4;
constexpr int kOddOffset = 5;
constexpr int kUnalignedCopy = 6;
constexpr int kCopyToNowhere = 7;
constexpr int kNoSuchLane = 8;
constexpr int kWritesPast = 9;
constexpr int kReadsUnaligned = 10;
constexpr int kNothing = 11;
constexpr int kLetsNextStart = 12;

void mischief(MischiefArgs args) {
    const int index = thread_index();
    switch (args.kind) {
        case kEndsEarly:
            if (index >= 3) sync_block();
            break;
        case kOtherBarrier:
            if (index == 40) sync_block();
            sync_block();
            break;
        case kOtherOperation:
            if (lane() == 7) (void)ballot(true);
            sync_warp();
            break;
        case kBlockAndWarp:
            if (index < 16) {
                sync_warp();
            } else {
                sync_block();
            }
            break;
        case kPastShared:
            (void)shared_memory<float>(1024);
            break;
        case kOddOffset:
            (void)shared_memory<float>(8);
            break;
        case kUnalignedCopy:
            copy_async16(shared_memory<float>(16), args.out + 1);
            break;
        case kCopyToNowhere:
            copy_async16(args.out, args.out);
            break;
        case kNoSuchLane:
            (void)shuffle(1.0F, 32);
            break;
        case kWritesPast:
            if (index == 0) shared_memory<float>(0)[256] = 1.0F;
            break;
        case kLetsNextStart:
            let_next_start();
            wait_for_previous();
            break;
        case kReadsUnaligned:
            (void)load_streamed(reinterpret_cast<const Words4*>(args.out + 1));
            break;
        default:
            break;
    }
}

std::string report_of(int kind, LaunchShape shape = {.threads = 64, .shared_bytes = 1024}) {
    const test::OnDevice<float> out(std::vector<float>(64, 0.0F));
    Stream stream;
    return error_of([&] { launch(stream, shape, mischief, {kind, out.data()}); });
}

TEST_CASE("threads that wait for one that has ended are reported, how many and where") {
    for (const emulated::Order order : all_orders()) {
        const OrderScope scope(order);
        const std::string report = report_of(kEndsEarly);
        CHECK(contains(report, "MischiefArgs"));
        CHECK(contains(report, "block (0, 0)"));
        CHECK(contains(report, "of 64 3 have ended, 61 wait in sync_block() at reports_emulated_"));
    }
    CHECK(report_of(kNothing).empty());  // and the next kernel runs as ever
}

TEST_CASE("threads at different barriers are reported") {
    for (const emulated::Order order : all_orders()) {
        const OrderScope scope(order);
        CHECK(contains(report_of(kOtherBarrier), "where others of the block wait at"));
    }
}

TEST_CASE("lanes of a warp in different operations are reported") {
    for (const emulated::Order order : all_orders()) {
        const OrderScope scope(order);
        CHECK(contains(report_of(kOtherOperation), "where others of its warp wait in"));
    }
}

TEST_CASE("a warp that waits partly for the block and partly for itself is reported") {
    const std::string report = report_of(kBlockAndWarp);
    CHECK(contains(report, "48 wait in sync_block() at"));
    CHECK(contains(report, "16 wait in sync_warp() at"));
}

TEST_CASE("shared memory beyond what was asked for is reported") {
    CHECK(contains(report_of(kPastShared), "from byte 1024, but it was given 1024 bytes"));
    CHECK(contains(report_of(kOddOffset), "no multiple of 16"));
#ifndef __SANITIZE_ADDRESS__  // which ends the program at the write itself
    CHECK(contains(report_of(kWritesPast), "wrote past its 1024 bytes of shared memory"));
#endif
}

TEST_CASE("wrong addresses of copies and loads are reported, and lanes that do not exist") {
    CHECK(contains(report_of(kUnalignedCopy), "unaligned"));
    CHECK(contains(report_of(kCopyToNowhere), "outside of its shared memory"));
    CHECK(contains(report_of(kReadsUnaligned), "unaligned"));
    CHECK(contains(report_of(kNoSuchLane), "no lane"));
}

TEST_CASE("a shape that no device takes is refused, also while recording") {
    CHECK(contains(report_of(kNothing, {.threads = 48}), "48 threads"));
    CHECK(contains(report_of(kNothing, {.threads = 2048}), "2048 threads"));
    CHECK(contains(report_of(kNothing, {.blocks_x = 0}), "0 x 1 blocks"));
    CHECK(contains(report_of(kNothing, {.shared_bytes = 227 * 1024 + 1}), "bytes of shared"));
    CHECK(report_of(kNothing, {.threads = 1024, .shared_bytes = 227 * 1024}).empty());
    Stream stream;
    CHECK(contains(error_of([&] {
                       (void)stream.record([&] { launch(stream, {.threads = 0}, mischief, {}); });
                   }),
                   "0 threads"));
}

TEST_CASE("a kernel that may begin early and never waits for the one before is reported") {
    CHECK(contains(report_of(kNothing, {.overlaps_previous = true}), "wait_for_previous()"));
    CHECK(contains(report_of(kLetsNextStart, {.overlaps_previous = true}),
                   "let_next_start() before wait_for_previous()"));
}

TEST_CASE("a device function outside of a kernel is reported") {
    CHECK(contains(error_of([] { (void)thread_index(); }), "outside of a kernel"));
}

}  // namespace
}  // namespace paceline::cuda
