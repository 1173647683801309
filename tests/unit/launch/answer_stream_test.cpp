#include "launch/session/answer_stream.hpp"

#include <fcntl.h>
#include <poll.h>
#include <random>
#include <sys/resource.h>
#include <thread>

#include <doctest/doctest.h>

#include "launch/session/waiting_line.hpp"

using namespace paceline;  // NOLINT(google-build-using-namespace): a test reads like prose
using std::chrono::milliseconds;

namespace {

bool readable(int descriptor) {
    pollfd one{.fd = descriptor, .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, 0) == 1;
}

}  // namespace

TEST_CASE("each reader gets the whole answer once, from where it begins") {
    auto stream = std::make_shared<AnswerStream>();
    AnswerReader first{stream};
    CHECK_FALSE(first.wait(milliseconds{0}));
    stream->append(1, "a");
    stream->append(2, "");
    CHECK(readable(first.descriptor()));
    AnswerPiece piece = first.read();
    CHECK(piece.ids == std::vector<TokenId>{1, 2});
    CHECK(piece.text == "a");
    CHECK_FALSE(piece.over);
    CHECK_FALSE(readable(first.descriptor()));
    AnswerReader late{stream, 1};
    stream->append(3, "bc");
    stream->end("d", {.generated_tokens = 3}, {});
    piece = late.read();
    CHECK(piece.begin == 1);
    CHECK(piece.ids == std::vector<TokenId>{2, 3});
    CHECK(piece.text == "bcd");
    CHECK(piece.over);
    CHECK(first.read().text == "bcd");
    AnswerReader after{stream, 3};
    CHECK(readable(after.descriptor()));
    piece = after.read();
    CHECK(piece.ids.empty());
    CHECK(piece.text == "d");
    CHECK(piece.stats.generated_tokens == 3);
}

TEST_CASE("a long answer is read in pieces, and a reader that never reads holds nothing up") {
    auto stream = std::make_shared<AnswerStream>();
    const AnswerReader idle{stream};
    constexpr auto kTokens = static_cast<TokenId>(2 * AnswerStream::kReadTokensMax + 10);
    CHECK(stream->bytes() < 1024);
    for (TokenId token = 0; token < kTokens; ++token) stream->append(token, "x");
    CHECK(stream->bytes() >= static_cast<std::size_t>(kTokens) * (1 + sizeof(TokenId)));
    stream->end("", {}, Error{Errc::PeerGone, "lost"});
    AnswerReader reader{stream};
    std::size_t pieces = 0;
    std::size_t tokens = 0;
    for (AnswerPiece piece = reader.read();; piece = reader.read()) {
        ++pieces;
        tokens += piece.ids.size();
        CHECK(piece.text.size() == piece.ids.size());
        if (!piece.over) continue;
        CHECK_FALSE(piece.status.ok());
        break;
    }
    CHECK(pieces == 3);
    CHECK(tokens == static_cast<std::size_t>(kTokens));
}

TEST_CASE("readers of other threads see every token, in order") {
    auto stream = std::make_shared<AnswerStream>();
    constexpr TokenId kTokens = 20'000;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            AnswerReader reader{stream};
            TokenId next = 0;
            for (bool over = false; !over;) {
                if (!reader.wait(milliseconds{60'000})) break;
                const AnswerPiece piece = reader.read();
                for (const TokenId token : piece.ids) CHECK(token == next++);
                over = piece.over;
            }
            CHECK(next == kTokens);
        });
    }
    for (TokenId token = 0; token < kTokens; ++token) stream->append(token, "y");
    stream->end("", {}, {});
    for (std::thread& thread : threads) thread.join();
}

TEST_CASE("a reader with a pause is woken for the first token and the end, and misses nothing") {
    auto stream = std::make_shared<AnswerStream>();
    AnswerReader reader{stream, 0, milliseconds{3'600'000}};
    CHECK_FALSE(readable(reader.descriptor()));
    stream->append(1, "a");
    CHECK(readable(reader.descriptor()));
    CHECK(reader.read().text == "a");
    stream->append(2, "b");
    CHECK_FALSE(readable(reader.descriptor()));
    CHECK(reader.wait(milliseconds{0}));  // asked, it knows
    stream->end("c", {}, {});
    CHECK(readable(reader.descriptor()));
    CHECK(reader.read().text == "bc");

    auto other = std::make_shared<AnswerStream>();
    AnswerReader short_pause{other, 0, milliseconds{1}};
    other->append(1, "a");
    (void)short_pause.read();
    other->append(2, "b");
    CHECK(short_pause.wait(milliseconds{60'000}));  // without a bell, after the pause
    CHECK(short_pause.read().text == "b");
}

TEST_CASE("without a descriptor left a reader still reads") {
    auto stream = std::make_shared<AnswerStream>();
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit none{0, before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
    AnswerReader reader{stream};
    ::setrlimit(RLIMIT_NOFILE, &before);
    CHECK(reader.descriptor() == -1);
    stream->append(1, "a");
    CHECK(reader.wait(milliseconds{60'000}));
    CHECK(reader.read().text == "a");
    CHECK_FALSE(reader.wait(milliseconds{5}));
}

TEST_CASE("a line is served by priority, then age, and none waits for ever") {
    WaitingLine line;
    using Micros = WaitingLine::Micros;
    CHECK_FALSE(line.take());
    line.add(1, 0, Micros{0});
    line.add(2, 0, Micros{1});
    line.add(3, -1, Micros{2});
    CHECK(line.take() == 3);
    line.remove(2);
    line.remove(2);
    CHECK(line.take() == 1);
    CHECK(line.size() == 0);
    // A newcomer of a better priority passes it only for that many steps of ageing.
    line.add(4, 2, Micros{0});
    line.add(5, 0, WaitingLine::kAgeing);
    line.add(6, 0, 3 * WaitingLine::kAgeing);
    CHECK(line.take() == 5);
    CHECK(line.take() == 4);
    CHECK(line.take() == 6);
}

TEST_CASE("the line and a plain list agree over random traces") {
    std::mt19937_64 random{7};
    struct Waits {
        std::uint64_t id;
        double rank;
    };
    for (int trace = 0; trace < 20; ++trace) {
        WaitingLine line;
        std::vector<Waits> list;
        std::chrono::microseconds now{0};
        for (std::uint64_t step = 0; step < 2'000; ++step) {
            now += std::chrono::microseconds{random() % 500'000};
            const auto first = [&] {
                return std::min_element(list.begin(), list.end(),
                                        [](const Waits& a, const Waits& b) {
                                            return a.rank != b.rank ? a.rank < b.rank : a.id < b.id;
                                        });
            };
            if (random() % 2 == 0) {
                const int priority = static_cast<int>(random() % 5) - 2;
                line.add(step, priority, now);
                list.push_back({step, priority + static_cast<double>(now.count()) / 2'000'000.0});
            } else if (random() % 4 == 0 && !list.empty()) {
                const std::size_t at = random() % list.size();
                line.remove(list[at].id);
                list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
            } else {
                const std::optional<std::uint64_t> taken = line.take();
                REQUIRE(taken.has_value() == !list.empty());
                if (!taken) continue;
                CHECK(*taken == first()->id);
                list.erase(first());
            }
            REQUIRE(line.size() == list.size());
        }
    }
}
