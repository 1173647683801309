// Watches with which tests cancel calls and let rows die, and streams that keep their work.
//
// A backend asks a watch about row 0 once before a batch and once at each poll while it waits for
// one: the number of such questions is the progress of the call. Asked by one thread, as RowWatch
// demands.
#pragma once

#include <cstddef>

#include "model/backend.hpp"
#include "tests/unit/cuda/emulated_fixture.hpp"

namespace paceline::testing {

/// Streams of the emulated device keep their work until the host polls or waits, as those of a GPU
/// do.
class LazyStreams {
public:
    LazyStreams() { set(true); }
    ~LazyStreams() { set(false); }
    LazyStreams(const LazyStreams&) = delete;
    LazyStreams& operator=(const LazyStreams&) = delete;

private:
    static void set([[maybe_unused]] bool lazy) {
#ifdef PACELINE_EMULATED_DEVICE
        cuda::emulated::set_lazy(lazy);
#endif
    }
};

/// Rows from `first` on are stale.
class DeadRows final : public CancelToken::RowWatch {
public:
    explicit DeadRows(std::size_t first) : first_{first} {}
    [[nodiscard]] bool stale(std::size_t row) const override { return row >= first_; }

private:
    std::size_t first_;
};

/// Cancels a call at one of its polls.
class CancelsAtPoll final : public CancelToken::RowWatch {
public:
    CancelsAtPoll(CancelToken& token, int polls) : token_{token}, left_{polls} {}
    [[nodiscard]] bool stale(std::size_t row) const override {
        if (row == 0 && --left_ == 0) token_.cancel();
        return false;
    }

private:
    CancelToken& token_;
    mutable int left_;
};

/// Cancels a call when it is asked about `row` or one after it, and remembers which one that was:
/// the first row of the first batch that begins there.
class CancelsAtRow final : public CancelToken::RowWatch {
public:
    CancelsAtRow(CancelToken& token, std::size_t row) : token_{token}, row_{row} {}
    [[nodiscard]] bool stale(std::size_t row) const override {
        if (row >= row_ && !token_.cancelled()) {
            at_ = row;
            token_.cancel();
        }
        return false;
    }
    [[nodiscard]] std::size_t at() const { return at_; }

private:
    CancelToken& token_;
    std::size_t row_;
    mutable std::size_t at_ = 0;
};

}  // namespace paceline::testing
