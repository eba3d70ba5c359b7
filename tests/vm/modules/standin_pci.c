// SPDX-License-Identifier: GPL-2.0
/*
 * A PCI topology that exists only in memory: NVIDIA-like functions without hardware behind them.
 *
 * Every GPU sits alone below a root port on a root bus of its own; one more root bus carries an NVSwitch and an audio
 * function. Configuration space is a table of words with write masks, so sizing a BAR, enabling a device and
 * changing its power state work as the PCI specification says. Nothing answers at the BARs' addresses.
 */
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/pci_regs.h>
#include <linux/slab.h>

#define MAX_GPUS 8
#define CONFIG_WORDS 1024
#define PM_OFFSET 0x60
#define EXPRESS_OFFSET 0x78
#define AER_OFFSET 0x100
#define EXTRA_BUS 0x05
#define NVIDIA(device) (PCI_VENDOR_ID_NVIDIA | (u32)(device) << 16)
#define GIB (1ULL << 30)
#define MIB (1ULL << 20)

static unsigned int gpus = 4;
module_param(gpus, uint, 0444);
MODULE_PARM_DESC(gpus, "How many GPUs (10de:2330) to present, 0 to 8");

static bool extras = true;
module_param(extras, bool, 0444);
MODULE_PARM_DESC(extras, "Also present an NVSwitch and an audio function");

static bool ports = true;
module_param(ports, bool, 0444);
MODULE_PARM_DESC(ports, "Put each GPU below a root port; without, no port above it is visible, as in a virtual machine");

static unsigned int lanes[MAX_GPUS] = { 16, 16, 16, 16, 16, 16, 16, 16 };
module_param_array(lanes, uint, NULL, 0444);
MODULE_PARM_DESC(lanes, "Negotiated link width of each GPU; all can do 16");

static unsigned int lost;
module_param(lost, uint, 0644);
MODULE_PARM_DESC(lost, "Bit mask of GPUs that left the bus: their configuration space reads all ones");

/* The bus numbers an HGX H100 board shows on common two-socket servers. */
static const u8 gpu_bus_numbers[MAX_GPUS] = { 0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf };

struct function {
	u32 word[CONFIG_WORDS];
	u32 writable[CONFIG_WORDS];
};

struct root {
	struct pci_sysdata sysdata; /* x86 reads domain and node through bus->sysdata, so it must come first */
	struct resource window;
	struct pci_bus *bus;
	struct function *port; /* what the root bus carries; NULL: the slots themselves */
	struct function *slots[2];
	unsigned int lost_bit; /* 0: cannot be lost */
};

static struct root roots[MAX_GPUS + 1];

static struct function *function_at(struct pci_bus *bus, unsigned int devfn)
{
	struct root *root = container_of(bus->sysdata, struct root, sysdata);

	if (root->port && pci_is_root_bus(bus))
		return devfn ? NULL : root->port;
	if (PCI_FUNC(devfn) || PCI_SLOT(devfn) >= ARRAY_SIZE(root->slots) || (lost & root->lost_bit))
		return NULL;
	return root->slots[PCI_SLOT(devfn)];
}

static int read_config(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	struct function *function = function_at(bus, devfn);

	/* As on x86, where nobody answers, the read succeeds and gives all ones. */
	*value = function ? function->word[where / 4] >> (8 * (where % 4)) : ~0U;
	if (size < 4)
		*value &= (1U << (8 * size)) - 1;
	return PCIBIOS_SUCCESSFUL;
}

static int write_config(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	struct function *function = function_at(bus, devfn);
	unsigned int shift = 8 * (where % 4);
	u32 mask;

	if (!function)
		return PCIBIOS_SUCCESSFUL;
	mask = (size < 4 ? (1U << (8 * size)) - 1 : ~0U) << shift;
	mask &= function->writable[where / 4];
	function->word[where / 4] = (function->word[where / 4] & ~mask) | ((value << shift) & mask);
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops config_ops = { .read = read_config, .write = write_config };

/* A 64-bit prefetchable memory BAR; size is a power of two. */
static void add_bar(struct function *function, int index, u64 address, u64 size)
{
	int word = PCI_BASE_ADDRESS_0 / 4 + index;
	u64 mask = ~(size - 1);

	function->word[word] = lower_32_bits(address) | PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH;
	function->word[word + 1] = upper_32_bits(address);
	function->writable[word] = lower_32_bits(mask) & PCI_BASE_ADDRESS_MEM_MASK;
	function->writable[word + 1] = upper_32_bits(mask);
}

static void add_power_management(struct function *function)
{
	function->word[PM_OFFSET / 4] = PCI_CAP_ID_PM | EXPRESS_OFFSET << 8 | 3U << 16;
	function->writable[(PM_OFFSET + PCI_PM_CTRL) / 4] = PCI_PM_CTRL_STATE_MASK;
}

static void add_express(struct function *function, unsigned int type, unsigned int width)
{
	u32 *word = function->word + EXPRESS_OFFSET / 4;
	u32 *writable = function->writable + EXPRESS_OFFSET / 4;

	word[0] = PCI_CAP_ID_EXP | (2U | type << 4) << 16;
	word[PCI_EXP_DEVCAP / 4] = PCI_EXP_DEVCAP_RBER;
	word[PCI_EXP_LNKCAP / 4] = PCI_EXP_LNKCAP_SLS_32_0GB | 16U << 4;
	word[PCI_EXP_LNKCTL / 4] = (PCI_EXP_LNKSTA_CLS_32_0GB | width << 4) << 16;
	word[PCI_EXP_LNKCAP2 / 4] = 0x3e; /* 2.5 to 32 GT/s */
	word[PCI_EXP_LNKCTL2 / 4] = PCI_EXP_LNKCTL2_TLS_32_0GT;
	writable[PCI_EXP_DEVCTL / 4] = 0xffff;
	writable[PCI_EXP_LNKCTL / 4] = 0xffff;
	function->word[AER_OFFSET / 4] = PCI_EXT_CAP_ID_ERR | 2U << 16;
}

static struct function *new_function(u32 id, u32 class, u16 subsystem)
{
	struct function *function = kzalloc(sizeof(*function), GFP_KERNEL);

	if (!function)
		return NULL;
	function->word[PCI_VENDOR_ID / 4] = id;
	function->word[PCI_COMMAND / 4] = PCI_STATUS_CAP_LIST << 16;
	function->writable[PCI_COMMAND / 4] = PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_INTX_DISABLE;
	function->word[PCI_CLASS_REVISION / 4] = class << 8 | 0xa1;
	function->word[PCI_SUBSYSTEM_VENDOR_ID / 4] = PCI_VENDOR_ID_NVIDIA | subsystem << 16;
	function->word[PCI_CAPABILITY_LIST / 4] = PM_OFFSET;
	add_power_management(function);
	add_express(function, PCI_EXP_TYPE_ENDPOINT, 16);
	return function;
}

/* An emulated x86 CPU has 40 address bits, the last few GiB reserved: eight windows of 64 GiB from 256 GiB on fit. */
static void place(struct root *root, unsigned int index)
{
	root->window = (struct resource)DEFINE_RES_MEM_NAMED((256ULL + 64 * index) * GIB, 64 * GIB, "standin_pci");
}

/* A bridge header over the same words (PCI-to-PCI Bridge Architecture Specification); its only open window is prefetchable. */
static struct function *new_root_port(const struct resource *window, u8 secondary, unsigned int width)
{
	struct function *port = new_function(PCI_VENDOR_ID_INTEL | 0x352aU << 16, 0x060400, 0);
	u32 base, limit;

	if (!port)
		return NULL;
	base = (lower_32_bits(window->start) >> 16 & 0xfff0) | PCI_PREF_RANGE_TYPE_64;
	limit = (lower_32_bits(window->end) >> 16 & 0xfff0) | PCI_PREF_RANGE_TYPE_64;
	port->word[PCI_CACHE_LINE_SIZE / 4] = PCI_HEADER_TYPE_BRIDGE << 16;
	port->word[PCI_PRIMARY_BUS / 4] = (secondary - 1) | secondary << 8 | secondary << 16;
	port->writable[PCI_PRIMARY_BUS / 4] = 0xffffff;
	port->word[PCI_IO_BASE / 4] = 0x00f0; /* ends before it begins: closed, as the next one */
	port->writable[PCI_IO_BASE / 4] = 0xf0f0;
	port->word[PCI_MEMORY_BASE / 4] = 0x0000fff0;
	port->writable[PCI_MEMORY_BASE / 4] = 0xfff0fff0;
	port->word[PCI_PREF_MEMORY_BASE / 4] = base | limit << 16;
	port->writable[PCI_PREF_MEMORY_BASE / 4] = 0xfff0fff0;
	port->word[PCI_PREF_BASE_UPPER32 / 4] = upper_32_bits(window->start);
	port->writable[PCI_PREF_BASE_UPPER32 / 4] = ~0U;
	port->word[PCI_PREF_LIMIT_UPPER32 / 4] = upper_32_bits(window->end);
	port->writable[PCI_PREF_LIMIT_UPPER32 / 4] = ~0U;
	add_express(port, PCI_EXP_TYPE_ROOT_PORT, width);
	port->word[AER_OFFSET / 4] = 0;
	return port;
}

static int fill_gpu_root(struct root *root, unsigned int index)
{
	struct function *gpu = new_function(NVIDIA(0x2330), 0x030200, 0x16c1);
	u64 base;

	if (!gpu)
		return -ENOMEM;
	place(root, index);
	base = root->window.start;
	add_bar(gpu, 0, base + 32 * GIB, 16 * MIB);
	add_bar(gpu, 2, base, 32 * GIB);
	add_bar(gpu, 4, base + 32 * GIB + 32 * MIB, 32 * MIB);
	add_express(gpu, PCI_EXP_TYPE_ENDPOINT, lanes[index]);
	root->slots[0] = gpu;
	root->lost_bit = BIT(index);
	if (ports)
		root->port = new_root_port(&root->window, gpu_bus_numbers[index], lanes[index]);
	return ports && !root->port ? -ENOMEM : 0;
}

static int fill_extra_root(struct root *root)
{
	root->slots[0] = new_function(NVIDIA(0x22a3), 0x068000, 0x1796);
	root->slots[1] = new_function(NVIDIA(0x22ba), 0x040300, 0x16c1);
	return root->slots[0] && root->slots[1] ? 0 : -ENOMEM;
}

static int start_root(struct root *root, u8 bus_number)
{
	struct pci_host_bridge *bridge = pci_alloc_host_bridge(0);
	int error;

	if (!bridge)
		return -ENOMEM;
	root->sysdata.node = 0;
	bridge->sysdata = &root->sysdata;
	bridge->busnr = bus_number;
	bridge->ops = &config_ops;
	if (root->window.start && !request_resource(&iomem_resource, &root->window))
		pci_add_resource(&bridge->windows, &root->window);
	error = pci_scan_root_bus_bridge(bridge);
	if (error) {
		pci_free_host_bridge(bridge);
		return error;
	}
	root->bus = bridge->bus;
	pci_bus_claim_resources(root->bus);
	pci_bus_add_devices(root->bus);
	return 0;
}

static void stop_root(struct root *root)
{
	if (root->bus) {
		pci_stop_root_bus(root->bus);
		pci_remove_root_bus(root->bus);
	}
	if (root->window.parent)
		release_resource(&root->window);
	kfree(root->port);
	kfree(root->slots[0]);
	kfree(root->slots[1]);
}

static void stop_all(void)
{
	unsigned int index;

	pci_lock_rescan_remove();
	for (index = 0; index < ARRAY_SIZE(roots); index++)
		stop_root(&roots[index]);
	pci_unlock_rescan_remove();
}

static int start_all(void)
{
	unsigned int index;
	int error = 0;

	if (extras) {
		error = fill_extra_root(&roots[MAX_GPUS]);
		if (!error)
			error = start_root(&roots[MAX_GPUS], EXTRA_BUS);
	}
	for (index = 0; !error && index < gpus; index++) {
		error = fill_gpu_root(&roots[index], index);
		if (!error)
			error = start_root(&roots[index], gpu_bus_numbers[index] - ports);
	}
	return error;
}

static int __init standin_pci_init(void)
{
	int error;

	if (gpus > MAX_GPUS)
		return -EINVAL;
	pci_lock_rescan_remove();
	error = start_all();
	pci_unlock_rescan_remove();
	if (error)
		stop_all();
	return error;
}

static void __exit standin_pci_exit(void)
{
	stop_all();
}

module_init(standin_pci_init);
module_exit(standin_pci_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("NVIDIA-like PCI functions without hardware, for gpudoctor's tests");
