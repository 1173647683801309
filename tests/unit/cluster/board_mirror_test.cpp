#include "runtime/cluster/board_mirror.hpp"

#include <vector>

#include <doctest/doctest.h>

using namespace paceline;

namespace {

std::shared_ptr<CancelBoard> new_board() {
    const ShmFile file = CancelBoard::create().value();
    return std::make_shared<CancelBoard>(
        CancelBoard::attach(ShmRegion::attach(file.fd(), 1).value()).value());
}

struct Lines final : FramePort {
    remote::Sent send(const remote::Frame& frame, remote::Lane /*lane*/, bool /*urgent*/) override {
        if (full) return remote::Sent::Full;
        lines.push_back(std::get<remote::BoardLine>(frame));
        return remote::Sent::Queued;
    }
    bool full = false;
    std::vector<remote::BoardLine> lines;
};

}  // namespace

TEST_CASE("entries of one board appear on the other, once, and do not come back") {
    const auto here = new_board();
    const auto there = new_board();
    BoardMirror near{here};
    BoardMirror far{there};
    Lines out;
    near.pump(out);
    CHECK(out.lines.empty());
    here->cancel_before(RequestId{70}, Attempt{3});
    here->publish_watermark(RequestId{5}, Attempt{1}, 17, 42);
    near.pump(out);
    REQUIRE(out.lines.size() == 2);
    for (const remote::BoardLine& line : out.lines) far.take(line);
    CHECK(there->word_of(RequestId{70})->load() == CancelBoard::mark_of(RequestId{70}, Attempt{3}));
    CHECK(there->watermark_of(RequestId{5})->read(RequestId{5}, Attempt{1}) ==
          WatermarkCell::Watermark{17, 42});
    Lines back;
    far.pump(back);
    CHECK(back.lines.empty());
    near.pump(out);
    CHECK(out.lines.size() == 2);
}

TEST_CASE("an entry without room is sent later") {
    const auto here = new_board();
    BoardMirror near{here};
    Lines out;
    out.full = true;
    here->cancel_before(RequestId{1}, Attempt{2});
    near.pump(out);
    out.full = false;
    near.pump(out);
    REQUIRE(out.lines.size() == 1);
    CHECK(out.lines[0].attempt == Attempt{2});
}
