//! QEMU's command line as a function of a typed description.

use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cloister_app_compose::ComposeHash;
use cloister_evidence::mr_config_id_v1;
use cloister_guest_channel::{
    CONFIG_DISK_SERIAL, DATA_DISK_SERIAL, IMAGE_MIRROR_ADDRESS, ROOT_DISK_SERIAL, STATUS_PORT, tee,
};
use cloister_node_api::Platform;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::gpus::PciAddress;

/// Identifier of the user network's back end, for the monitor's port forwards.
pub(crate) const NETWORK_ID: &str = "net0";
/// Addresses that the firmware keeps for devices above 4 GiB unless it is told otherwise, in MiB.
const USUAL_WINDOW_MB: u64 = 32 * 1024;
/// Memory that an emulated GPU shows, in MiB: as with a real one, too much for below 4 GiB. Nothing of the host
/// is behind it.
const EMULATED_GPU_MB: u64 = 8 * 1024;

/// Everything that decides how a VM looks.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) vm: Uuid,
    /// Virtual CPUs.
    pub(crate) vcpu: u32,
    /// Memory in MiB.
    pub(crate) memory_mb: u32,
    pub(crate) protection: Protection,
    pub(crate) boot: BootFiles,
    pub(crate) disks: Disks,
    pub(crate) channels: Channels,
    pub(crate) mirror: ImageMirror,
    pub(crate) gpus: Vec<GpuDevice>,
}

/// A GPU of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GpuDevice {
    /// One of the host, which QEMU gets through VFIO.
    Host(PciAddress),
    /// A test device in its place: development only.
    Emulated,
}

impl GpuDevice {
    /// Addresses for its memory, in MiB. The largest GPUs show 256 GiB at once and some smaller regions beside
    /// it, and regions are aligned to their size.
    const fn window_mb(self) -> u64 {
        match self {
            Self::Host(_) => 512 * 1024,
            Self::Emulated => 2 * EMULATED_GPU_MB,
        }
    }
}

/// Files of a guest image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BootFiles {
    pub(crate) kernel: PathBuf,
    pub(crate) initrd: PathBuf,
    pub(crate) rootfs: PathBuf,
    /// Firmware that the image brings; `None` boots with QEMU's own.
    pub(crate) firmware: Option<PathBuf>,
    /// Kernel command line.
    pub(crate) cmdline: String,
}

/// Disks besides the image's root.
#[derive(Debug, Clone)]
pub(crate) struct Disks {
    /// Configuration archive, read-only.
    pub(crate) config: PathBuf,
    /// The CVM's data, raw.
    pub(crate) data: PathBuf,
}

/// Where the process leaves its PID and meets the node.
#[derive(Debug, Clone)]
pub(crate) struct Channels {
    pub(crate) pid_file: PathBuf,
    /// Console output, appended.
    pub(crate) serial_log: PathBuf,
    /// Socket that leads to the console and back; `None` leaves nobody a way to type on it.
    pub(crate) console: Option<PathBuf>,
    /// Monitor socket (QMP) that takes commands.
    pub(crate) monitor: PathBuf,
    /// Monitor socket that is listened to for as long as the VM runs.
    pub(crate) events: PathBuf,
    /// Status channel socket.
    pub(crate) status: PathBuf,
    /// Socket of the development TEE's channel; guests with hardware of their own have none.
    pub(crate) tee: PathBuf,
}

/// How connections of the guest to the image mirror leave the VM.
#[derive(Debug, Clone)]
pub(crate) struct ImageMirror {
    /// Program and arguments that copy their standard streams to `socket`, which is appended.
    pub(crate) relay_command: Vec<String>,
    pub(crate) socket: PathBuf,
}

/// What stands between the host and the guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Software emulation: nothing.
    Emulation,
    /// KVM: nothing.
    Kvm,
    /// Intel TDX; the compose hash goes into MRCONFIGID.
    Tdx { compose_hash: ComposeHash },
    /// AMD SEV-SNP; the compose hash goes into `HOST_DATA`.
    SevSnp {
        compose_hash: ComposeHash,
        /// Position of the encryption bit in page table entries, from CPUID 0x8000001F.
        c_bit_position: u32,
    },
}

impl Protection {
    /// The protection that a host platform gives.
    pub(crate) fn new(platform: Platform, compose_hash: ComposeHash, c_bit_position: u32) -> Self {
        match platform {
            Platform::Emulation => Self::Emulation,
            Platform::Kvm => Self::Kvm,
            Platform::Tdx => Self::Tdx { compose_hash },
            Platform::SevSnp => Self::SevSnp { compose_hash, c_bit_position },
        }
    }

    /// Accelerator, CPU model and the machine's properties.
    fn accelerator(self) -> [(&'static str, &'static str); 3] {
        let (accelerator, cpu, machine) = match self {
            // One host thread for all CPUs: with a thread each, a CPU can execute a breakpoint that another
            // one has just patched out of the kernel, and about 1 boot in 30 panics. And no enhanced `rep movsb`:
            // an emulated one copies byte by byte, while without the promise kernels and libraries take whole words.
            Self::Emulation => ("tcg,thread=single", "max,-erms", "q35,hpet=off"),
            Self::Kvm => ("kvm", "host", "q35,kernel-irqchip=split,hpet=off"),
            Self::Tdx { .. } => {
                ("kvm", "host", "q35,kernel-irqchip=split,confidential-guest-support=tdx,hpet=off")
            }
            Self::SevSnp { .. } => (
                "kvm",
                "EPYC-v4",
                "q35,kernel-irqchip=split,confidential-guest-support=sev0,memory-backend=ram0,hpet=off",
            ),
        };
        [("-accel", accelerator), ("-cpu", cpu), ("-machine", machine)]
    }

    /// What the kernel is told behind the image's own line: nothing where hardware measures that.
    const fn more_cmdline(self) -> &'static str {
        match self {
            // QEMU before 8.0 leaves the flags undefined behind `cmpxchg16b`, with which kernels allocate memory: an interrupt
            // right then saves them, and the way back from it faults. About 1 boot in 200 panicked on a busy host. Programs
            // are shown the instruction all the same, because some images demand it.
            Self::Emulation => " clearcpuid=cx16",
            Self::Kvm | Self::Tdx { .. } | Self::SevSnp { .. } => "",
        }
    }

    fn objects(self, memory_mb: u32) -> Vec<String> {
        match self {
            Self::Emulation | Self::Kvm => Vec::new(),
            Self::Tdx { compose_hash } => {
                let object = serde_json::json!({
                    "qom-type": "tdx-guest",
                    "id": "tdx",
                    "mrconfigid": BASE64_STANDARD.encode(mr_config_id_v1(&compose_hash).as_bytes()),
                    "quote-generation-socket": { "type": "vsock", "cid": "2", "port": "4050" },
                });
                vec![object.to_string()]
            }
            Self::SevSnp { compose_hash, c_bit_position } => vec![
                format!("memory-backend-memfd,id=ram0,size={memory_mb}M,share=on,prealloc=off"),
                // Policy 0x30000: simultaneous multithreading allowed, debugging and migration not.
                format!(
                    "sev-snp-guest,id=sev0,policy=0x30000,cbitpos={c_bit_position},reduced-phys-bits=1,\
                     kernel-hashes=on,host-data={}",
                    BASE64_STANDARD.encode(compose_hash.as_bytes())
                ),
            ],
        }
    }
}

impl Machine {
    /// The arguments of `qemu-system-x86_64`. All paths must be absolute: the process leaves its
    /// directory when it becomes a daemon.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut line = Arguments::default();
        line.add("-daemonize");
        line.pair("-name", format!("guest=cloister-{}", self.vm));
        line.pair("-uuid", self.vm.to_string());
        line.pair("-pidfile", path(&self.channels.pid_file));
        line.pair("-sandbox", "on,obsolete=deny,resourcecontrol=deny");
        for argument in ["-nodefaults", "-no-user-config", "-no-reboot"] {
            line.add(argument);
        }
        line.pair("-display", "none");
        for (flag, mut value) in self.protection.accelerator() {
            // The address space of a model CPU ends below the windows of GPUs.
            if flag == "-cpu" && self.has_host_gpus() && matches!(self.protection, Protection::SevSnp { .. })
            {
                value = "EPYC-v4,host-phys-bits=on";
            }
            line.pair(flag, value);
        }
        for object in self.protection.objects(self.memory_mb) {
            line.pair("-object", object);
        }
        line.pair("-smp", self.vcpu.to_string());
        line.pair("-m", format!("{}M", self.memory_mb));
        self.boot(&mut line);
        self.channels(&mut line);
        self.network(&mut line);
        line.pair("-device", "virtio-rng-pci");
        // Last, so that all other devices are where they are without GPUs.
        self.gpus(&mut line);
        line.0
    }

    fn boot(&self, line: &mut Arguments) {
        if let Some(firmware) = &self.boot.firmware {
            line.pair("-bios", path(firmware));
        }
        line.pair("-kernel", path(&self.boot.kernel));
        line.pair("-initrd", path(&self.boot.initrd));
        line.pair("-append", format!("{}{}", self.boot.cmdline, self.protection.more_cmdline()));
        line.disk(
            "root",
            ROOT_DISK_SERIAL,
            &format!("read-only=on,file.filename={}", value(&self.boot.rootfs)),
        );
        line.disk(
            "config",
            CONFIG_DISK_SERIAL,
            &format!("read-only=on,file.filename={}", value(&self.disks.config)),
        );
        // Freed blocks go back to the host: the file is sparse.
        line.disk(
            "data",
            DATA_DISK_SERIAL,
            &format!("discard=unmap,detect-zeroes=unmap,file.filename={}", value(&self.disks.data)),
        );
    }

    fn channels(&self, line: &mut Arguments) {
        let channels = &self.channels;
        let serial_log = value(&channels.serial_log);
        let serial = match &channels.console {
            None => format!("file,id=serial,append=on,path={serial_log}"),
            Some(console) => format!(
                "socket,id=serial,server=on,wait=off,path={},logfile={serial_log},logappend=on",
                value(console)
            ),
        };
        line.pair("-chardev", serial);
        line.pair("-serial", "chardev:serial");
        for (name, socket) in [("monitor", &channels.monitor), ("events", &channels.events)] {
            line.pair("-chardev", format!("socket,id={name},server=on,wait=off,path={}", value(socket)));
            line.pair("-mon", format!("chardev={name},mode=control"));
        }
        line.pair(
            "-chardev",
            format!("socket,id=status,server=on,wait=off,path={}", value(&channels.status)),
        );
        line.pair("-device", "virtio-serial-pci");
        line.pair("-device", format!("virtserialport,chardev=status,name={STATUS_PORT}"));
        if matches!(self.protection, Protection::Emulation | Protection::Kvm) {
            line.pair("-chardev", format!("socket,id=tee,server=on,wait=off,path={}", value(&channels.tee)));
            line.pair("-device", format!("virtserialport,chardev=tee,name={}", tee::PORT));
        }
    }

    /// Each GPU sits behind a root port of its own, as it does in a host. The firmware must place what does
    /// not fit below 4 GiB, and is told how much that is.
    fn gpus(&self, line: &mut Arguments) {
        if self.gpus.is_empty() {
            return;
        }
        let window_mb: u64 = self.gpus.iter().map(|gpu| gpu.window_mb()).sum();
        let window_mb = window_mb.next_power_of_two().max(USUAL_WINDOW_MB);
        line.pair("-fw_cfg", format!("name=opt/ovmf/X-PciMmio64Mb,string={window_mb}"));
        if self.has_host_gpus() {
            line.pair("-object", "iommufd,id=iommufd0");
        }
        for (port, gpu) in (1..).zip(&self.gpus) {
            line.pair(
                "-device",
                format!("pcie-root-port,id=pci.{port},bus=pcie.0,chassis={port},slot={port}"),
            );
            let device = match gpu {
                GpuDevice::Host(address) => {
                    format!("vfio-pci,host={address},bus=pci.{port},iommufd=iommufd0")
                }
                GpuDevice::Emulated => format!("pci-testdev,bus=pci.{port},membar={EMULATED_GPU_MB}M"),
            };
            line.pair("-device", device);
        }
    }

    fn has_host_gpus(&self) -> bool {
        self.gpus.iter().any(|gpu| matches!(gpu, GpuDevice::Host(_)))
    }

    /// A network of the VM's own, behind the process' sockets. It keeps VMs apart, but not from the host:
    /// an address of it that is nobody's leads to the host's loopback, so what listens there must know its
    /// clients.
    fn network(&self, line: &mut Arguments) {
        let relay = shell_words(self.mirror.relay_command.iter().chain([&path(&self.mirror.socket)]));
        line.pair(
            "-netdev",
            format!("user,id={NETWORK_ID},guestfwd=tcp:{IMAGE_MIRROR_ADDRESS}-cmd:{}", escape(&relay)),
        );
        line.pair(
            "-device",
            format!("virtio-net-pci,netdev={NETWORK_ID},mac={},romfile=", mac_address(self.vm)),
        );
    }
}

/// A command line in the making.
#[derive(Default)]
struct Arguments(Vec<String>);

impl Arguments {
    fn add(&mut self, argument: &str) {
        self.0.push(argument.to_owned());
    }

    fn pair(&mut self, flag: &str, value: impl Into<String>) {
        self.add(flag);
        self.0.push(value.into());
    }

    fn disk(&mut self, node: &str, serial: &str, options: &str) {
        self.pair("-blockdev", format!("driver=raw,node-name={node},file.driver=file,{options}"));
        self.pair("-device", format!("virtio-blk-pci,drive={node},serial={serial}"));
    }
}

fn path(path: &std::path::Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A path as the value of an option list.
fn value(path: &std::path::Path) -> String {
    escape(&path.to_string_lossy())
}

/// In option lists a comma ends the value, two commas are one.
fn escape(text: &str) -> String {
    text.replace(',', ",,")
}

/// Quotes words for the shell-like splitting that the user network applies to a command.
fn shell_words<'a>(words: impl Iterator<Item = &'a String>) -> String {
    words.map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect::<Vec<_>>().join(" ")
}

/// The platform's rule: six bytes of a hash of the VM's id, marked as local and unicast.
fn mac_address(vm: Uuid) -> String {
    let digest = Sha256::digest(vm.to_string());
    digest
        .iter()
        .take(6)
        .enumerate()
        .map(|(index, byte)| if index == 0 { (byte | 0x02) & 0xfe } else { *byte })
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .join(":")
}

#[cfg(test)]
mod tests;
