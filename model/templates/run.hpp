// Run: the state of one rendering: used limits, its values, and the reason of a failure.
//
// The first failure is kept; after it every value is Undefined and every loop ends, so that callers
// need not check failed() after each step.
// One thread; owned by the interpreter.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/templates/time_format.hpp"
#include "model/templates/value.hpp"

namespace paceline::jinja {

/// A template is part of a model file and therefore untrusted.
struct Limits {
    std::uint64_t steps = 20'000'000;  // about a second
    int depth = 600;                   // of expressions, statements, macro calls
    std::size_t output_bytes = std::size_t{16} << 20U;
    std::size_t memory_bytes = std::size_t{256} << 20U;  // of values made while rendering
};

class Run {
public:
    Run(const Limits& limits, const LocalTime& now) : limits_{limits}, now_{now} {}

    [[nodiscard]] bool failed() const { return failure_.has_value(); }
    [[nodiscard]] const Error& failure() const { return *failure_; }
    /// Undefined. `what` goes on after "the chat template, line 7: ".
    Value fail(std::string what);
    /// Where the template is, for messages.
    void at_line(int line) { line_ = line; }
    [[nodiscard]] const LocalTime& now() const { return now_; }
    [[nodiscard]] const Limits& limits() const { return limits_; }

    /// Counts work; false once there is too much of it, or after another failure.
    bool step(std::uint64_t count = 1);
    /// Whether `bytes` more may be made; fails if not.
    bool room(std::size_t bytes);
    /// Appends while there is room.
    void append(Text& to, const Text& more);
    void append(Text& to, std::string_view more, Origin origin);

    /// Counts a level of recursion as long as it lives.
    class Level {
    public:
        explicit Level(Run& run) : run_{run} { run.enter(); }
        Level(const Level&) = delete;
        Level& operator=(const Level&) = delete;
        ~Level() { --run_.depth_; }

    private:
        Run& run_;
    };

    template <class T>
    Value make(T value) {
        room(0);
        return heap_.add(std::move(value));
    }
    Value text(std::string_view words) { return make(Text{words, Origin::Template}); }
    Value list(std::vector<Value> items, ListForm form = ListForm::List) {
        return make(List{std::move(items), form});
    }
    [[nodiscard]] Heap& heap() { return heap_; }

private:
    void enter();

    Limits limits_;
    LocalTime now_;
    Heap heap_;
    std::optional<Error> failure_;
    std::uint64_t steps_ = 0;
    int depth_ = 0;
    int line_ = 0;
};

}  // namespace paceline::jinja
