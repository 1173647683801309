// Kinds: the data messages that a role declares to handle or to emit.
//
//     struct Dispatcher {
//         using Handles = Kinds<msg::Proposal>;    // Inbox::attach() routes these kinds to it
//         using Emits = Kinds<>;                   // emit<Dispatcher>() of another kind does not
//                                                  compile
//     };
//
// Types without values: all checks happen at compile time.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ipc/wire/batch_frame.hpp"
#include "ipc/wire/messages.hpp"
#include "runtime/loop/context.hpp"

namespace paceline {

template <msg::DataMessage... Ms>
struct Kinds {
    template <class M>
    static constexpr bool has = (std::is_same_v<M, Ms> || ...);
};

template <class Role, class M>
concept EmittedBy = msg::DataMessage<M> && Role::Emits::template has<M>;

/// Sends a message that may be lost: after Full nothing is kept.
template <class Role, class M>
requires EmittedBy<Role, M> Push emit(Context& context, StageId to, const M& message) {
    return context.send(to, static_cast<std::uint16_t>(M::kKind), msg::frame_of(message));
}

}  // namespace paceline
