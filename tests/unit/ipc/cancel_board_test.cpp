#include "ipc/wire/cancel_board.hpp"

#include <array>
#include <atomic>
#include <map>
#include <thread>

#include <doctest/doctest.h>

#include "tests/unit/ipc/seeded_random.hpp"

using namespace paceline;

namespace {

CancelBoard attach(const ShmFile& file) {
    return CancelBoard::attach(ShmRegion::attach(file.fd(), 1).value()).value();
}

}  // namespace

TEST_CASE("what the conductor declares void is seen on every board of the same memory") {
    const ShmFile file = CancelBoard::create().value();
    CancelBoard conductor = attach(file);
    const CancelBoard stage = attach(file);
    const RequestId request{77};
    const CancelBoard::Word* word = stage.word_of(request);
    CHECK(word->load() == 0);
    conductor.cancel_before(request, Attempt{3});
    CHECK(word->load() == CancelBoard::mark_of(request, Attempt{3}));
    // Greater than the mark of what became void, equal to that of what is valid.
    CHECK(word->load() > CancelBoard::mark_of(request, Attempt{2}));
}

TEST_CASE("requests that share a line are told apart by the upper half of its word") {
    const ShmFile file = CancelBoard::create().value();
    CancelBoard board = attach(file);
    const RequestId one{5};
    const RequestId other{5 + kCancelLines};
    REQUIRE(board.word_of(one) == board.word_of(other));
    CHECK(board.word_of(one) != board.word_of(RequestId{6}));
    board.cancel_before(other, Attempt{9});
    const std::uint64_t request_half = board.word_of(one)->load() >> 32U;
    CHECK(request_half != CancelBoard::mark_of(one, Attempt{1}) >> 32U);
}

TEST_CASE("memory that is too small is no cancel board") {
    const ShmFile file = ShmFile::create("small", 128, {}).value();
    const auto board = CancelBoard::attach(ShmRegion::attach(file.fd(), 1).value());
    REQUIRE_FALSE(board.ok());
    CHECK(board.error().code == Errc::Protocol);
}

TEST_CASE("a watermark is seen on every board of the same memory, by those whose attempt it is") {
    const ShmFile file = CancelBoard::create().value();
    CancelBoard verifier = attach(file);
    const CancelBoard stage = attach(file);
    const RequestId request{0x1'0000'0005ULL};
    const WatermarkCell* cell = stage.watermark_of(request);
    CHECK_FALSE(cell->read(request, Attempt{1}));
    CHECK_FALSE(cell->read(RequestId{0}, Attempt{0}));  // whom untouched memory might mean
    verifier.publish_watermark(request, Attempt{1}, 17, 40'000);
    CHECK(cell->read(request, Attempt{1}) == WatermarkCell::Watermark{17, 40'000});
    CHECK_FALSE(cell->read(request, Attempt{2}));
    CHECK_FALSE(cell->read(RequestId{5 + kCancelLines}, Attempt{1}));
    CHECK_FALSE(stage.watermark_of(RequestId{6})->read(request, Attempt{1}));
    verifier.publish_watermark(request, Attempt{1}, 21, 0);
    CHECK(cell->read(request, Attempt{1}) == WatermarkCell::Watermark{21, 0});
    verifier.publish_watermark(RequestId{request.value + kCancelLines}, Attempt{1}, 3, 4);
    CHECK_FALSE(cell->read(request, Attempt{1}));  // the line has a new tenant
    CHECK(stage.word_of(request)->load() == 0);    // the conductor's word is not touched
}

TEST_CASE("what untouched or zeroed memory says is nothing, for every request and attempt") {
    const ShmFile file = CancelBoard::create().value();
    const CancelBoard board = attach(file);
    for (std::uint64_t id = 0; id < 2 * kCancelLines; ++id) {
        CHECK_FALSE(board.watermark_of(RequestId{id})->read(RequestId{id}, Attempt{0}));
    }
}

TEST_CASE("readers beside a writer never see one request's watermark under another's name") {
    // Two requests and two attempts take turns on one line, each with watermarks that only it has:
    // the token is a function of request, attempt and position.
    const ShmFile file = CancelBoard::create().value();
    CancelBoard verifier = attach(file);
    struct Owner {
        RequestId request;
        Attempt attempt;
    };
    const std::array owners{Owner{RequestId{9}, Attempt{1}}, Owner{RequestId{9}, Attempt{2}},
                            Owner{RequestId{9 + kCancelLines}, Attempt{1}}};
    const auto token_of = [](const Owner& owner, Position position) {
        return static_cast<TokenId>((owner.request.value * 31 + owner.attempt.value) * 7'919 +
                                    static_cast<std::uint64_t>(position) * 13) &
               0x7fffffff;
    };
    std::atomic<bool> over{false};
    std::atomic<int> begun{0};
    std::array<std::uint64_t, 2> seen{};
    std::array<std::uint64_t, 2> wrong{};
    std::array<std::thread, 2> readers;
    for (std::size_t r = 0; r < readers.size(); ++r) {
        readers[r] = std::thread{[&, r] {
            const CancelBoard stage = attach(file);
            const WatermarkCell* cell = stage.watermark_of(owners[0].request);
            std::map<std::size_t, Position> newest;
            ++begun;
            for (bool last = false; !last;) {
                last = over.load(
                    std::memory_order_acquire);  // once more: then it is not being written
                for (std::size_t i = 0; i < owners.size(); ++i) {
                    const auto watermark = cell->read(owners[i].request, owners[i].attempt);
                    if (!watermark) continue;
                    ++seen[r];
                    const bool true_one =
                        watermark->token == token_of(owners[i], watermark->position);
                    const bool forwards = watermark->position >= newest[i];
                    if (!true_one || !forwards) ++wrong[r];
                    newest[i] = watermark->position;
                }
            }
        }};
    }
    while (begun < 2) std::this_thread::yield();
    test::SeededRandom random{11};
    for (Position position = 1; position < 1'000'000; ++position) {
        const Owner& owner = owners[random.below(3)];
        verifier.publish_watermark(owner.request, owner.attempt, position,
                                   token_of(owner, position));
    }
    over.store(true, std::memory_order_release);
    for (std::thread& reader : readers) reader.join();
    CHECK(wrong == std::array<std::uint64_t, 2>{0, 0});
    CHECK(seen[0] > 0);
    CHECK(seen[1] > 0);
}
