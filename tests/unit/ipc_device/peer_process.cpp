#include "peer_process.hpp"

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fmt/core.h>
#include <spawn.h>
#include <string_view>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <doctest/doctest.h>

extern char** environ;

namespace paceline::test {
namespace {

constexpr const char* kWord = "--link-peer";
constexpr int kLineOfPeer = 3;

void send_offer(int line, const LinkOffer& offer) {
    iovec part{const_cast<std::byte*>(offer.bytes.data()), offer.bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = space.data();
    message.msg_controllen = space.size();
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    const int file = offer.files.front().get();
    std::memcpy(CMSG_DATA(head), &file, sizeof(int));
    (void)::sendmsg(line, &message, MSG_NOSIGNAL);
}

LinkOffer receive_offer(int line) {
    LinkOffer offer;
    offer.bytes.resize(4096);
    iovec part{offer.bytes.data(), offer.bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = space.data();
    message.msg_controllen = space.size();
    const ssize_t got = ::recvmsg(line, &message, MSG_CMSG_CLOEXEC);
    offer.bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    if (const cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr) {
        int file = -1;
        std::memcpy(&file, CMSG_DATA(head), sizeof(int));
        offer.files.emplace_back(file);
    }
    return offer;
}

std::string act(const Plan& plan, Role role) {
    LinkOffer offer = receive_offer(kLineOfPeer);
    if (role == Role::Unready) ::pause();
    Result<std::unique_ptr<TensorDevice>> device = make_tensor_device(other_device());
    if (!device) return device.error().what;
    Result<std::unique_ptr<Driver>> driver = open_driver(other_device());
    if (!driver) return driver.error().what;
    auto link = device.value()->open_out(plan.transport, spec_of(plan), std::move(offer));
    if (!link) return link.error().what;
    if (role == Role::Whole) {
        return produce(*link.value(), *driver.value(), kLineOfPeer, plan);
    }
    if (std::string problem = opened(*link.value()); !problem.empty()) return problem;
    if (role == Role::Silent) {
        const std::array<std::uint64_t, 2> message = {0, 8};  // tensor 0, slot 0, 8 bytes
        (void)::send(kLineOfPeer, message.data(), sizeof(message), MSG_NOSIGNAL);
    }
    ::pause();
    return "";
}

}  // namespace

PeerProcess::PeerProcess(const Plan& plan, Role role) {
    const std::array<std::string, 7> words = {"peer",
                                              kWord,
                                              std::to_string(static_cast<int>(plan.transport)),
                                              std::to_string(plan.slots),
                                              std::to_string(plan.slot_bytes),
                                              std::to_string(plan.tensors),
                                              std::to_string(static_cast<int>(role))};
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, line_.producer.get(), kLineOfPeer);
    REQUIRE(::posix_spawn(&process_, "/proc/self/exe", &actions, nullptr, arguments.data(),
                          environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    line_.producer.reset();
}

PeerProcess::~PeerProcess() {
    if (process_ > 0) kill();
}

void PeerProcess::give(LinkOffer offer) {
    send_offer(line(), offer);
}

void PeerProcess::kill() {
    ::kill(process_, SIGKILL);
    (void)wait();
}

int PeerProcess::wait() {
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

bool is_peer(int argc, char** argv) {
    return argc == 7 && std::string_view{argv[1]} == kWord;
}

std::optional<int> run_as_peer(int argc, char** argv) {
    if (!is_peer(argc, argv)) return {};
    Plan plan;
    plan.transport = static_cast<Transport>(std::atoi(argv[2]));
    plan.slots = static_cast<std::uint32_t>(std::atoi(argv[3]));
    plan.slot_bytes = static_cast<std::size_t>(std::atoll(argv[4]));
    plan.tensors = static_cast<std::uint32_t>(std::atoi(argv[5]));
    const std::string problem = act(plan, static_cast<Role>(std::atoi(argv[6])));
    if (!problem.empty()) fmt::print(stderr, "peer: {}\n", problem);
    return problem.empty() ? 0 : 1;
}

int other_device() {
    return open_driver(1).ok() ? 1 : 0;
}

bool skipped_between_processes(Transport transport) {
    const LinkAbilities abilities = link_abilities(0);
    const bool nccl = transport == Transport::Nccl;
    const std::string& why = nccl ? abilities.why_no_nccl : abilities.why_no_exported;
    if (!why.empty()) MESSAGE("skipped: " << why);
    return !why.empty();
}

bool skipped(Transport transport) {
    if (skipped_between_processes(transport)) return true;
    if (transport != Transport::Nccl || other_device() != 0) return false;
    MESSAGE("skipped: both ranks in one process need two devices");
    return true;
}

}  // namespace paceline::test
