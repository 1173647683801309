// Inbox: the data messages of one actor: a table that routes each kind to the role that handles it,
// the check of their epoch (epoch_fence.hpp), and the filter that tells stale, current and
// early messages apart (attempt_filter.hpp).
//
//     inbox.attach(role)                  one table entry for each kind in Role::Handles
//     inbox.deliver(from, kind, bytes)    entry -> decode -> role.handle(from, message)
//                                         -> error: its sender is reported (sender_fault.hpp)
//     inbox.admit(from, message)          asked by the handler: is the message current?
//
// An entry is a plain function and the role's address: no allocation and no virtual call per
// message. A kind without an entry is a Protocol error of its sender. A handler returns only errors
// of the message itself; the actor reports errors of the work that follows from it.
// Borrows the roles and the context. Threads: the actor's loop.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <fmt/core.h>
#include <set>
#include <span>

#include "actors/protocol/attempt_filter.hpp"
#include "actors/protocol/epoch_fence.hpp"
#include "actors/protocol/message_checks.hpp"
#include "actors/protocol/message_kinds.hpp"
#include "actors/protocol/sender_fault.hpp"
#include "ipc/base/check.hpp"

namespace paceline {

class Inbox {
public:
    explicit Inbox(AttemptFilter::Overflow overflow) : attempts{overflow} {}

    /// Before the first message. Stale messages are counted and traced in `context`.
    void start(StageContext& context) { context_ = &context; }

    /// Precondition: no other role handles one of its kinds.
    template <class Role>
    void attach(Role& role) {
        attach(role, typename Role::Handles{});
    }

    /// Errors: those that are not the sender's fault; for others the sender is reported
    /// (sender_fault.hpp).
    Status deliver(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) {
        const Status done = handle(from, kind, bytes);
        return done.ok() ? done : blame_sender(*context_, from, done.error());
    }
    /// Delivers the messages that had arrived before their Begin, which has been handled since. If
    /// their sender is reported, its remaining ones are dropped. Errors: as deliver().
    Status deliver_due() {
        std::set<StageId> reported;
        for (const AttemptFilter::Held& held : attempts.take_due()) {
            if (reported.contains(held.from)) continue;
            const Status done = handle(held.from, held.kind, held.bytes);
            if (done.ok()) continue;
            const Status own = blame_sender(*context_, held.from, done.error());
            if (!own) return own;
            reported.insert(held.from);
        }
        return {};
    }

    /// The age of a message; an Early one is kept for deliver_due(). Errors: as
    /// AttemptFilter::admit().
    template <msg::PlainMessage M>
    Result<Age> admit(StageId from, const M& message) {
        if (!of_channel<M>(from, message.route)) return Age::Stale;
        return fence<M>(from, message.route,
                        attempts.admit(from, kind_of<M>, message.route, msg::frame_of(message)));
    }
    /// As admit(), for a message that may be lost.
    template <msg::PlainMessage M>
    Age admit_hint(StageId from, const M& message) {
        if (!of_channel<M>(from, message.route)) return Age::Stale;
        return fence<M>(
                   from, message.route,
                   attempts.admit_hint(from, kind_of<M>, message.route, msg::frame_of(message)))
            .value();
    }
    /// As admit(), for a message that the caller keeps itself if it is early.
    template <msg::DataMessage M>
    Age peek(StageId from, const msg::Route& route) {
        if (!of_channel<M>(from, route)) return Age::Stale;
        return fence<M>(from, route, attempts.peek(route)).value();
    }

    AttemptFilter attempts;

private:
    static constexpr std::size_t kKindsEnd = static_cast<std::size_t>(msg::Kind::OwnTokens) + 1;
    template <msg::DataMessage M>
    static constexpr std::uint16_t kind_of = static_cast<std::uint16_t>(M::kKind);

    struct Entry {
        void* role = nullptr;
        Status (*handle)(void* role, StageId from, std::span<const std::byte> bytes) = nullptr;
    };

    Status handle(StageId from, std::uint16_t kind, std::span<const std::byte> bytes) {
        if (kind < kKindsEnd && table_[kind].handle != nullptr) {
            return table_[kind].handle(table_[kind].role, from, bytes);
        }
        return Error{
            Errc::Protocol,
            fmt::format("stage {} sent a message of kind {}, which this stage does not handle",
                        from.value, kind)};
    }
    template <class Role, msg::DataMessage... Ms>
    void attach(Role& role, Kinds<Ms...> /*kinds*/) {
        (attach_one<Role, Ms>(role), ...);
    }
    template <class Role, msg::DataMessage M>
    void attach_one(Role& role) {
        static_assert(kind_of<M> < kKindsEnd);
        Entry& entry = table_[kind_of<M>];
        PACE_CHECK(entry.handle == nullptr, "two roles of an actor handle the same message kind");
        entry.role = &role;
        entry.handle = [](void* to, StageId from, std::span<const std::byte> bytes) -> Status {
            const Result<M> message = decode_message<M>(bytes);
            if (!message) return message.error();
            return static_cast<Role*>(to)->handle(from, message.value());
        };
    }

    template <msg::DataMessage M>
    bool of_channel(StageId from, const msg::Route& route) {
        return has_epoch_of_channel(*context_, from, kind_of<M>, route);
    }
    template <msg::DataMessage M>
    Result<Age> fence(StageId from, const msg::Route& route, Result<Age> age) {
        if (age.ok() && age.value() == Age::Stale) count_fenced(*context_, from, kind_of<M>, route);
        return age;
    }

    StageContext* context_ = nullptr;
    std::array<Entry, kKindsEnd> table_{};
};

}  // namespace paceline
