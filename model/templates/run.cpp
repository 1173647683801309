#include "model/templates/run.hpp"

#include <fmt/core.h>

namespace paceline::jinja {

Value Run::fail(std::string what) {
    if (!failure_)
        failure_ = Error{Errc::Unsupported,
                         fmt::format("the chat template, line {}: {}", line_, std::move(what))};
    return {};
}

bool Run::step(std::uint64_t count) {
    steps_ += count;
    if (steps_ > limits_.steps)
        fail(fmt::format("more than {} steps; it may never end", limits_.steps));
    return !failed();
}

bool Run::room(std::size_t bytes) {
    if (bytes > limits_.memory_bytes || heap_.bytes() > limits_.memory_bytes - bytes)
        fail(fmt::format("its values take more than {} MiB", limits_.memory_bytes >> 20U));
    return !failed();
}

void Run::append(Text& to, const Text& more) {
    if (step(more.size() / 64) && room(2 * (to.size() + more.size()))) to.append(more);
}

void Run::append(Text& to, std::string_view more, Origin origin) {
    if (step(more.size() / 64) && room(2 * (to.size() + more.size()))) to.append(more, origin);
}

void Run::enter() {
    if (++depth_ > limits_.depth)
        fail(fmt::format("more than {} levels of nesting or recursion", limits_.depth));
}

}  // namespace paceline::jinja
