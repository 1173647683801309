#include "runtime/cluster/conductor_hub.hpp"

#include <algorithm>
#include <condition_variable>
#include <fmt/core.h>
#include <future>
#include <map>
#include <mutex>
#include <signal.h>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "ipc/remote/secure_connection.hpp"
#include "runtime/cluster/cluster_node.hpp"
#include "runtime/cluster/hub_guest.hpp"
#include "runtime/cluster/node_slot.hpp"

namespace paceline {
namespace {

namespace asio = boost::asio;
using SteadyClock = std::chrono::steady_clock;

/// How often leases are looked at; frames have a doorbell of their own.
constexpr std::chrono::milliseconds kLookInterval{100};
/// An agent that sent nothing for so long is not given a place: it asks every 0.5 s.
constexpr std::chrono::milliseconds kFreshLimit{2'000};
constexpr std::chrono::milliseconds kGoodbye{1'500};
constexpr std::chrono::milliseconds kGoodbyeStep{5};

class Hub final : public ConductorHub {
public:
    Hub(const remote::NodeKey& key, HubPlan plan) : key_{key}, plan_{std::move(plan)} {
        for (std::size_t i = 0; i < plan_.nodes; ++i)
            slots_.push_back(std::make_unique<NodeSlot>(io_, plan_.lease, plan_.stop_grace));
        hellos_.resize(plan_.nodes);
        names_ = plan_.names;
        names_.resize(plan_.nodes);
        plan_.hello.lease_ms = lease_ms();
    }
    ~Hub() override;

    [[nodiscard]] Status open();
    [[nodiscard]] Result<std::vector<remote::Hello>> await_nodes(std::chrono::milliseconds limit,
                                                                 const OnMissing& told) override;
    [[nodiscard]] std::string missing() const override;
    void renew() override;
    [[nodiscard]] Result<std::unique_ptr<NodeAgent>> make_node(NodeEvents events,
                                                               bool catch_signals) override;

private:
    void take(remote::ConnectionPtr connection);
    void with_first(const Guest& bulk, void (NodeLink::*call)());
    [[nodiscard]] Status on_bulk_hello(const GuestPtr& guest, const remote::Hello& hello);
    [[nodiscard]] Status on_frame(const GuestPtr& guest, const remote::Frame& frame);
    void on_end(const GuestPtr& guest, const Error& error);
    [[nodiscard]] Status on_hello(const GuestPtr& guest, const remote::Hello& hello);
    void replace_earlier(const remote::Hello& hello);
    [[nodiscard]] std::uint32_t lease_ms() const {
        return static_cast<std::uint32_t>(plan_.lease.length / std::chrono::milliseconds{1});
    }
    [[nodiscard]] Status refuse(Guest& guest, const Objection& why);
    [[nodiscard]] std::optional<std::size_t> slot_for(const remote::Hello& hello) const;
    void seat(const GuestPtr& guest, std::size_t index);
    void seat_spares();
    void close_silent();
    void look();
    void await_goodbyes(SteadyClock::time_point deadline);
    void say(const std::string& sentence, bool is_news = false) {
        if (plan_.say) plan_.say(sentence, is_news);
    }

    remote::NodeKey key_;
    HubPlan plan_;
    asio::io_context io_{1};
    std::optional<asio::executor_work_guard<asio::io_context::executor_type>> busy_{
        io_.get_executor()};
    asio::steady_timer timer_{io_};
    std::unique_ptr<remote::SecureListener> listener_;
    std::vector<std::unique_ptr<NodeSlot>> slots_;
    std::vector<GuestPtr> guests_;              // without a slot
    std::vector<std::weak_ptr<Guest>> firsts_;  // that have said Hello
    bool leaving_ = false;

    mutable std::mutex door_;  // of what follows
    std::condition_variable changed_;
    std::vector<std::optional<remote::Hello>> hellos_;  // by slot
    std::vector<std::string> names_;                    // by slot; empty: any
    std::string last_refusal_;
    std::thread thread_;
};

// ---- its thread ----

Status Hub::open() {
    remote::ListenerEvents events;
    events.on_connection = [this](remote::ConnectionPtr connection) {
        take(std::move(connection));
    };
    events.on_refused = [this](const std::string& sentence) {
        {
            const std::lock_guard lock{door_};
            last_refusal_ = sentence;
        }
        say(sentence);
    };
    Result<std::unique_ptr<remote::SecureListener>> listener = remote::SecureListener::listen(
        io_, plan_.listen, key_, {.channel_by_hello = true}, std::move(events));
    if (!listener.ok()) return listener.error();
    listener_ = std::move(listener).value();
    look();
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // a thread inherits the mask
    thread_ = std::thread{[this] { io_.run(); }};
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return {};
}

Hub::~Hub() {
    if (!thread_.joinable()) return;
    asio::post(io_, [this] {
        leaving_ = true;
        timer_.cancel();
        listener_.reset();
        for (const auto& slot : slots_) slot->close("the run is over");
        for (const GuestPtr& guest : guests_) {
            if (!guest->side) continue;
            if (!guest->is_bulk) guest->side->link.say(remote::Shutdown{"the run is over"});
            guest->side->link.close("the run is over");
        }
        busy_.reset();
    });
    asio::post(io_, [this] { await_goodbyes(SteadyClock::now() + kGoodbye); });
    thread_.join();
}

/// A connection that takes nothing is not waited for.
void Hub::await_goodbyes(SteadyClock::time_point deadline) {
    const bool connected = std::any_of(slots_.begin(), slots_.end(),
                                       [](const auto& slot) { return slot->is_connected(); });
    if ((!connected && guests_.empty()) || SteadyClock::now() >= deadline) return io_.stop();
    timer_.expires_after(kGoodbyeStep);
    timer_.async_wait(
        [this, deadline](const boost::system::error_code& /*error*/) { await_goodbyes(deadline); });
}

void Hub::take(remote::ConnectionPtr connection) {
    auto guest = std::make_shared<Guest>();
    guest->side = std::make_unique<LinkSide>(
        std::move(connection), [weak = std::weak_ptr{guest}](std::uint32_t edge, const Error& e) {
            const GuestPtr known = weak.lock();
            if (known && known->slot != nullptr) known->slot->on_broken(edge, e);
        });
    guest->raw = guest->side.get();
    guest->last_frame = SteadyClock::now();
    guests_.push_back(guest);
    guest->raw->link.start(
        {.on_frame = [this, guest](const remote::Frame& frame) { return on_frame(guest, frame); },
         .on_end = [this, guest](const Error& error) { on_end(guest, error); },
         .on_room =
             [this, guest] {
                 if (guest->is_bulk) return with_first(*guest, &NodeLink::on_bulk_room);
                 if (guest->slot != nullptr) guest->slot->round();
             }});
}

/// The connection that a second one belongs to, if it is still there.
void Hub::with_first(const Guest& bulk, void (NodeLink::*call)()) {
    const GuestPtr first = bulk.first.lock();
    if (first && first->raw != nullptr) (first->raw->link.*call)();
}

/// Whose second connection this is: the first one said Hello with the same number.
Status Hub::on_bulk_hello(const GuestPtr& guest, const remote::Hello& hello) {
    GuestPtr first;
    for (const std::weak_ptr<Guest>& each : firsts_) {
        const GuestPtr known = each.lock();
        const bool same = known && known->raw != nullptr && known->hello.session == hello.session &&
                          known->hello.machine == hello.machine;
        if (same) first = known;
    }
    if (!first) return Error{Errc::Protocol, "a second connection without a first one"};
    remote::Hello answer = plan_.hello;
    answer.channel = remote::Channel::Bulk;
    guest->raw->link.say(answer);
    guest->is_bulk = true;
    guest->first = first;
    first->raw->link.add_bulk(guest->raw->link.connection());
    return {};
}

Status Hub::on_frame(const GuestPtr& guest, const remote::Frame& frame) {
    if (guest->slot != nullptr) return guest->slot->on_frame(guest->raw, frame);
    guest->last_frame = SteadyClock::now();
    if (const auto* hello = std::get_if<remote::Hello>(&frame)) {
        if (hello->channel == remote::Channel::Bulk) return on_bulk_hello(guest, *hello);
        return on_hello(guest, *hello);
    }
    if (guest->is_bulk) return Error{Errc::Protocol, "an agent sends nothing here"};
    // A machine that waits for a place keeps its lease; nothing else is wanted of it.
    if (const auto* ask = std::get_if<remote::LeaseAsk>(&frame)) {
        guest->raw->link.say(
            remote::LeaseGrant{ask->number, ask->asked_ns, 0, Epoch{}, lease_ms()});
    }
    return {};
}

void Hub::on_end(const GuestPtr& guest, const Error& error) {
    if (guest->is_bulk) {
        if (const GuestPtr first = guest->first.lock(); first && first->raw != nullptr && !leaving_)
            first->raw->link.close("its second connection has ended: " + error.what);
        asio::post(io_, [side = std::shared_ptr<LinkSide>{std::move(guest->side)}] {});
        std::erase(guests_, guest);
        return;
    }
    const LinkSide* side = std::exchange(guest->raw, nullptr);
    for (const GuestPtr& bulk : guests_) {
        if (bulk->is_bulk && bulk->first.lock() == guest)
            bulk->raw->link.close("its first one is over");
    }
    const std::string who =
        guest->hello.node.empty() ? "" : "machine '" + guest->hello.node + "': ";
    if (!leaving_) say(who + error.what, guest->slot != nullptr);
    if (guest->slot != nullptr) {
        guest->slot->on_end(side, error);
    } else {
        // This call comes from within it.
        asio::post(io_, [side = std::shared_ptr<LinkSide>{std::move(guest->side)}] {});
    }
    std::erase(guests_, guest);
}

Status Hub::refuse(Guest& guest, const Objection& why) {
    {
        const std::lock_guard lock{door_};
        last_refusal_ = why.text;
    }
    guest.is_closing = true;
    guest.raw->link.say(remote::Refused{why.text, why.passes});
    guest.raw->link.close(why.text);
    say(why.text);
    return {};
}

/// The same agent connects anew: the end of its old connection has not arrived.
void Hub::replace_earlier(const remote::Hello& hello) {
    for (const std::weak_ptr<Guest>& each : firsts_) {
        const GuestPtr old = each.lock();
        const bool same = old && old->is_agent() && old->hello.machine == hello.machine &&
                          old->hello.session == hello.session;
        if (!same) continue;
        if (old->slot != nullptr) {
            old->slot->replace("its agent has connected anew");
        } else {
            old->is_closing = true;
            old->raw->link.close("its agent has connected anew");
        }
    }
}

Status Hub::on_hello(const GuestPtr& guest, const remote::Hello& hello) {
    guest->hello = hello;
    replace_earlier(hello);
    if (const auto why = objection_to(*guest, plan_.hello, firsts_)) return refuse(*guest, *why);
    guest->raw->link.say(plan_.hello);
    firsts_.push_back(guest);
    std::erase_if(firsts_, [](const auto& each) { return each.expired(); });
    if (const auto index = slot_for(hello)) {
        seat(guest, *index);
    } else {
        say("machine '" + hello.node + "' is there and has no stages");
    }
    return {};
}

/// Its own place, then one that no machine has had, then none: a lost one is given away by
/// seat_spares().
std::optional<std::size_t> Hub::slot_for(const remote::Hello& hello) const {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (slots_[i]->is_connected() || names_[i] != hello.node) continue;
        // Stages may still run on another machine that had this name.
        const bool may_run = slots_[i]->is_leased() && hellos_[i]->machine != hello.machine;
        if (!may_run) return i;
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (!slots_[i]->is_connected() && !slots_[i]->is_leased() && names_[i].empty()) return i;
    }
    return std::nullopt;
}

void Hub::seat(const GuestPtr& guest, std::size_t index) {
    std::erase(guests_, guest);
    guest->slot = slots_[index].get();
    slots_[index]->adopt(std::move(guest->side));
    bool again = false;
    {
        const std::lock_guard lock{door_};
        again = hellos_[index].has_value();
        hellos_[index] = guest->hello;
        names_[index] = guest->hello.node;
    }
    say("machine '" + guest->hello.node + "' is there (" + guest->raw->link.peer() + ")", again);
    changed_.notify_all();
}

/// A machine without stages takes the place of one whose lease has ended.
void Hub::seat_spares() {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (slots_[i]->is_connected() || slots_[i]->is_leased()) continue;
        const auto now = SteadyClock::now();
        const auto spare =
            std::find_if(guests_.begin(), guests_.end(), [now](const GuestPtr& guest) {
                return guest->is_agent() && guest->side && now - guest->last_frame < kFreshLimit;
            });
        const std::lock_guard lock{door_};
        if (spare == guests_.end() || !hellos_[i]) continue;
        asio::post(io_, [this, guest = *spare, i] {
            if (!slots_[i]->is_connected() && guest->is_agent() && guest->side) seat(guest, i);
        });
        return;
    }
}

/// Agents without a place behind a link that was cut: each asks for its lease as all do.
void Hub::close_silent() {
    const auto now = SteadyClock::now();
    const auto limit = plan_.lease.length + plan_.lease.margin;
    for (const GuestPtr& guest : guests_) {
        if (!guest->is_agent() || now - guest->last_frame < limit) continue;
        guest->is_closing = true;
        guest->raw->link.close("nothing came from it for the length of a lease");
    }
}

void Hub::look() {
    for (const auto& slot : slots_) slot->round();
    close_silent();
    seat_spares();
    timer_.expires_after(kLookInterval);
    timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error && !leaving_) look();
    });
}

// ---- the starting thread ----

Result<std::vector<remote::Hello>> Hub::await_nodes(std::chrono::milliseconds limit,
                                                    const OnMissing& told) {
    const auto deadline = SteadyClock::now() + limit;
    std::unique_lock lock{door_};
    const auto there = [this] {
        return std::count_if(hellos_.begin(), hellos_.end(), [](const auto& h) { return !!h; });
    };
    const auto all = static_cast<std::ptrdiff_t>(hellos_.size());
    bool is_late = false;
    for (std::ptrdiff_t known = -1; there() < all && !is_late;) {
        if (told && std::exchange(known, there()) != there()) {
            lock.unlock();
            told(missing());
            lock.lock();
            continue;
        }
        const auto seen = there();
        is_late = !changed_.wait_until(lock, deadline, [&] { return there() != seen; });
    }
    std::vector<remote::Hello> hellos;
    for (const auto& hello : hellos_) {
        if (hello) hellos.push_back(*hello);
    }
    if (!is_late) return hellos;
    std::string text = fmt::format("{} of {} other machines are there after {} s", hellos.size(),
                                   all, limit.count() / 1'000);
    std::string names;
    for (std::size_t i = 0; i < hellos_.size(); ++i) {
        if (!hellos_[i] && !names_[i].empty()) names += (names.empty() ? "" : ", ") + names_[i];
    }
    if (!names.empty()) text += "; missing: " + names;
    text += "; waiting at " + listener_->place().text();
    if (!last_refusal_.empty()) text += "; last refused: " + last_refusal_;
    return Error{Errc::PeerGone, text};
}

std::string Hub::missing() const {
    std::string text;
    std::size_t unnamed = 0;
    {
        const std::lock_guard lock{door_};
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            if (slots_[i]->connected()) continue;
            if (names_[i].empty()) {
                ++unnamed;
            } else {
                text += fmt::format("{}machine '{}'", text.empty() ? "" : ", ", names_[i]);
            }
        }
    }
    if (unnamed > 0)
        text += fmt::format("{}{} other machine{}", text.empty() ? "" : ", ", unnamed,
                            unnamed == 1 ? "" : "s");
    return text.empty() ? text : text + " at " + plan_.listen.text();
}

void Hub::renew() {
    std::promise<void> done;
    asio::post(io_, [this, &done] {
        for (const auto& slot : slots_) slot->replace("the pipeline is started again");
        done.set_value();
    });
    done.get_future().wait();
}

Result<std::unique_ptr<NodeAgent>> Hub::make_node(NodeEvents events, bool catch_signals) {
    std::vector<NodeSlot*> slots;
    for (const auto& slot : slots_) slots.push_back(slot.get());
    std::vector<std::string> names;
    {
        const std::lock_guard lock{door_};
        names = names_;
    }
    return make_cluster_node(io_, std::move(slots), names, std::move(events), catch_signals);
}

}  // namespace

Result<std::unique_ptr<ConductorHub>> ConductorHub::open(const remote::NodeKey& key, HubPlan plan) {
    auto hub = std::make_unique<Hub>(key, std::move(plan));
    if (const Status opened = hub->open(); !opened.ok()) return opened.error();
    return std::unique_ptr<ConductorHub>{std::move(hub)};
}

}  // namespace paceline
