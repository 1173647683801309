// TapStack: the residuals of a text's last accepted token, as the target's segments send them: each
// those of its layers, the newest position counts. Used by LayerChooser.
//
//     [Empty] -- take() --> [Collecting] -- all layers are there --> [Complete]
//        ^                                                               |
//        +--------------------------- drop() ----------------------------+
//
// If a part is lost, the stack is never complete, and the next position takes its place.
// Borrows the backend, which knows in which memory residuals lie. Threads: the actor's loop.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ipc/base/result.hpp"
#include "ipc/wire/messages.hpp"
#include "model/backend.hpp"

namespace paceline {

class TapStack {
public:
    TapStack(Backend& backend, int layers);

    /// The note's residuals, read in place. Errors: Protocol for layers or sizes that the model
    /// does not have.
    Status take(const msg::TensorNote& note, ConstHiddenRows residuals);
    /// The request of a complete stack; nothing if no stack is complete.
    [[nodiscard]] std::optional<msg::Route> complete() const {
        return missing_ == 0 ? std::optional{route_} : std::nullopt;
    }
    void drop() { missing_ = -1; }

    [[nodiscard]] Position position() const { return position_; }
    /// [layers + 1, dim]: after each of them; the first is not known.
    [[nodiscard]] std::span<const float> residuals() const { return residuals_; }

private:
    Backend& backend_;
    std::vector<bool> there_;  // by layer
    std::vector<float> residuals_;
    msg::Route route_{};
    Position position_ = 0;
    int missing_ = -1;  // layers; -1: there is no stack
};

}  // namespace paceline
