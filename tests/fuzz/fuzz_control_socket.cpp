// Fuzzes the framing of the control socket: records of [files, length, bytes], each one write
// with so many descriptors. What comes out are messages with as many files as they announce, then
// an error or the end; no descriptor is left after.
#include <array>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc/wire/control_socket.hpp"
#include "ipc/wire/messages.hpp"
#include "tests/fuzz/control_messages.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace paceline;
using namespace paceline::test;

namespace {

constexpr std::size_t kFilesMax = 3;

int a_file() {
    static const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    return file;
}

/// One write. The socket's buffer is larger than any script: nothing blocks.
void write_record(const ControlSocket& socket,
                  std::size_t files,
                  std::span<const std::byte> bytes) {
    std::array<int, kFilesMax> descriptors{};
    descriptors.fill(a_file());
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof descriptors)> ancillary{};
    iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
    msghdr call{};
    call.msg_iov = &part;
    call.msg_iovlen = 1;
    if (files > 0) {
        call.msg_control = ancillary.data();
        call.msg_controllen = CMSG_SPACE(files * sizeof(int));
        cmsghdr* item = CMSG_FIRSTHDR(&call);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(files * sizeof(int));
        std::memcpy(CMSG_DATA(item), descriptors.data(), files * sizeof(int));
    }
    PACE_CHECK(::sendmsg(socket.fd(), &call, MSG_NOSIGNAL | MSG_DONTWAIT) > 0, "sendmsg");
}

void receive_all(ControlSocket& socket) {
    for (;;) {
        const Result<std::optional<ControlSocket::Received>> received = socket.try_receive();
        if (!received.ok()) return;  // at the latest at the end of the file
        if (!received.value()) return;
        PACE_CHECK(received.value()->files.size() <= kControlFilesMax, "too many files");
        for (const OwnedFd& file : received.value()->files) {
            PACE_CHECK(file.get() >= 0, "a file that is none");
        }
    }
}

/// The lowest free descriptor: the same before and after if none was left behind.
int lowest_free() {
    const int fd = ::dup(a_file());
    PACE_CHECK(fd >= 0, "dup");
    ::close(fd);
    return fd;
}

}  // namespace

FuzzBytes paceline::test::valid_input(SeededRandom& random) {
    FuzzBytes script;
    for (std::uint32_t messages = 1 + random.below(3); messages > 0; --messages) {
        const std::uint32_t which = random.below(kControlTypes);
        const std::vector<std::byte> body = control::encode(control_message(which, random));
        ControlFrameHeader header{};
        header.magic = kControlMagic;
        header.version = static_cast<std::uint16_t>(msg::kWireVersion);
        header.type = static_cast<std::uint16_t>(which + 1);
        header.len = static_cast<std::uint32_t>(body.size());
        header.files = random.below(kFilesMax + 1);
        header.from = static_cast<std::uint16_t>(random.below(4));
        script.push_back(static_cast<std::uint8_t>(header.files));
        const auto length = static_cast<std::uint16_t>(sizeof header + body.size());
        const auto append = [&script](const void* bytes, std::size_t count) {
            const auto* begin = static_cast<const std::uint8_t*>(bytes);
            script.insert(script.end(), begin, begin + count);
        };
        append(&length, sizeof length);
        append(&header, sizeof header);
        append(body.data(), body.size());
    }
    return script;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzReader script{std::span{data, size}};
    const int before = lowest_free();
    {
        auto [writer, reader] = ControlSocket::make_pair().value();
        for (int i = 0; i < 16 && !script.empty(); ++i) {
            const std::size_t files = script.byte() % (kFilesMax + 1);
            const std::span<const std::byte> bytes = script.rest(script.take<std::uint16_t>());
            if (bytes.empty()) break;
            write_record(writer, files, bytes);
            if (i % 4 == 3) receive_all(reader);
        }
        writer.close();
        receive_all(reader);
    }
    PACE_CHECK(lowest_free() == before, "a descriptor was left behind");
    return 0;
}
