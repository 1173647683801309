#include <array>

#include <doctest/doctest.h>

#include "ipc/cancel_board.hpp"

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
    conductor.declare_void(request, Attempt{3});
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
    board.declare_void(other, Attempt{9});
    const std::uint64_t request_half = board.word_of(one)->load() >> 32U;
    CHECK(request_half != CancelBoard::mark_of(one, Attempt{1}) >> 32U);
}

TEST_CASE("memory that is too small is no cancel board") {
    const ShmFile file = ShmFile::create("small", 128, {}).value();
    const auto board = CancelBoard::attach(ShmRegion::attach(file.fd(), 1).value());
    REQUIRE_FALSE(board.ok());
    CHECK(board.error().code == Errc::Protocol);
}
