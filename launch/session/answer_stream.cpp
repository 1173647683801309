#include "launch/session/answer_stream.hpp"

#include <algorithm>
#include <cstdint>
#include <poll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "ipc/base/check.hpp"

namespace paceline {

TokenOrigin token_origin(msg::Origin origin) {
    switch (origin) {
        case msg::Origin::Trunk:
        case msg::Origin::RunnerUp:
            return TokenOrigin::Draft;
        case msg::Origin::Exit:
            return TokenOrigin::Exit;
        case msg::Origin::Lookup:
            return TokenOrigin::Lookup;
        case msg::Origin::Heads:
            return TokenOrigin::Heads;
        case msg::Origin::Forced:
            return TokenOrigin::Forced;
    }
    return TokenOrigin::Draft;
}

const char* name_of(TokenOrigin origin) {
    switch (origin) {
        case TokenOrigin::Target:
            return "target";
        case TokenOrigin::Draft:
            return "draft";
        case TokenOrigin::Exit:
            return "exit";
        case TokenOrigin::Lookup:
            return "lookup";
        case TokenOrigin::Heads:
            return "heads";
        case TokenOrigin::Forced:
            return "forced";
    }
    return "";
}

void AnswerStream::append(TokenId token, std::string_view text, TokenOrigin origin) {
    const std::lock_guard lock{mutex_};
    PACE_CHECK(!over_, "a token follows the end of its answer");
    ids_.push_back(token);
    origins_.push_back(origin);
    text_ += text;
    text_ends_.push_back(text_.size());
    ring();
}

void AnswerStream::add_prompt_scores(TokenScores scores) {
    const std::lock_guard lock{mutex_};
    if (prompt_scores_.empty()) prompt_scores_.emplace_back();
    prompt_scores_.push_back(std::move(scores));
}

void AnswerStream::add_scores(TokenScores scores) {
    const std::lock_guard lock{mutex_};
    PACE_CHECK(scores_.size() == ids_.size(), "scores of one token more than there are");
    scores_.push_back(std::move(scores));
}

std::vector<TokenScores> AnswerStream::prompt_scores() const {
    const std::lock_guard lock{mutex_};
    return prompt_scores_;
}

void AnswerStream::end(std::string_view rest, const AnswerStats& stats, const Status& status) {
    const std::lock_guard lock{mutex_};
    PACE_CHECK(!over_, "an answer ends twice");
    text_ += rest;
    stats_ = stats;
    status_ = status;
    over_ = true;
    ring();
}

AnswerPiece AnswerStream::piece(std::size_t begin) const {
    const std::lock_guard lock{mutex_};
    AnswerPiece piece{.begin = std::min(begin, ids_.size())};
    const std::size_t count = std::min(ids_.size() - piece.begin, kReadTokensMax);
    const std::size_t end = piece.begin + count;
    piece.over = over_ && end == ids_.size();
    const auto first = static_cast<std::ptrdiff_t>(piece.begin);
    const auto last = static_cast<std::ptrdiff_t>(end);
    piece.ids.assign(ids_.begin() + first, ids_.begin() + last);
    piece.origins.assign(origins_.begin() + first, origins_.begin() + last);
    if (!scores_.empty()) piece.scores.assign(scores_.begin() + first, scores_.begin() + last);
    const std::size_t from = piece.begin == 0 ? 0 : text_ends_[piece.begin - 1];
    piece.text_ends.reserve(count);
    for (std::size_t i = piece.begin; i < end; ++i) piece.text_ends.push_back(text_ends_[i] - from);
    const std::size_t to = piece.over ? text_.size() : end == 0 ? 0 : text_ends_[end - 1];
    piece.text = text_.substr(from, to - from);
    if (!piece.over) return piece;
    piece.stats = stats_;
    piece.status = status_;
    return piece;
}

std::size_t AnswerStream::size() const {
    const std::lock_guard lock{mutex_};
    return ids_.size();
}

bool AnswerStream::over() const {
    const std::lock_guard lock{mutex_};
    return over_;
}

std::size_t AnswerStream::bytes() const {
    const std::lock_guard lock{mutex_};
    std::size_t scored = 0;
    for (const std::vector<TokenScores>* all : {&prompt_scores_, &scores_}) {
        scored += all->capacity() * sizeof(TokenScores);
        if (!all->empty()) scored += all->size() * all->back().top.size() * sizeof(ScoredToken);
    }
    return text_.capacity() + ids_.capacity() * sizeof(TokenId) +
           text_ends_.capacity() * sizeof(std::size_t) + scored;
}

void AnswerStream::watch(const Bell& bell) {
    const std::lock_guard lock{mutex_};
    bells_.push_back(bell);
    if (!ids_.empty() || over_) ring();
}

void AnswerStream::unwatch(int descriptor) {
    const std::lock_guard lock{mutex_};
    std::erase_if(bells_, [=](const Bell& bell) { return bell.descriptor == descriptor; });
}

void AnswerStream::quieten(int descriptor) {
    const std::lock_guard lock{mutex_};
    for (Bell& bell : bells_) {
        if (bell.descriptor == descriptor) bell.quiet_until = Clock::now() + bell.pause;
    }
}

void AnswerStream::ring() const {
    const std::uint64_t one = 1;
    for (const Bell& bell : bells_) {
        const bool quiet = bell.pause.count() > 0 && !over_ && Clock::now() < bell.quiet_until;
        // A full counter (EAGAIN) is readable as it is.
        if (!quiet) (void)!::write(bell.descriptor, &one, sizeof one);
    }
}

AnswerReader::AnswerReader(std::shared_ptr<AnswerStream> stream,
                           std::size_t begin,
                           std::chrono::milliseconds pause)
    : stream_{std::move(stream)},
      bell_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)},
      pause_{pause},
      next_{begin} {
    if (bell_.get() >= 0) stream_->watch({.descriptor = bell_.get(), .pause = pause});
}

AnswerReader::~AnswerReader() {
    if (bell_.get() >= 0) stream_->unwatch(bell_.get());
}

AnswerPiece AnswerReader::read() {
    std::uint64_t rings = 0;
    if (bell_.get() >= 0) (void)!::read(bell_.get(), &rings, sizeof rings);
    AnswerPiece piece = stream_->piece(next_);
    next_ = piece.begin + piece.ids.size();
    told_over_ = piece.over;
    if (pause_.count() > 0 && !piece.ids.empty()) stream_->quieten(bell_.get());
    return piece;
}

bool AnswerReader::ready() const {
    const std::lock_guard lock{stream_->mutex_};
    return stream_->ids_.size() > next_ || (stream_->over_ && !told_over_);
}

bool AnswerReader::wait(std::chrono::milliseconds limit) {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (!ready()) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            until - std::chrono::steady_clock::now());
        if (left.count() <= 0) return false;
        if (bell_.get() < 0) {
            std::this_thread::sleep_for(std::min(left, std::chrono::milliseconds{2}));
            continue;
        }
        pollfd one{.fd = bell_.get(), .events = POLLIN, .revents = 0};
        const auto longest = pause_.count() > 0 ? std::min(left, pause_) : left;
        (void)::poll(&one, 1, static_cast<int>(longest.count()));
        std::uint64_t rings = 0;
        (void)!::read(bell_.get(), &rings, sizeof rings);
    }
    return true;
}

}  // namespace paceline
