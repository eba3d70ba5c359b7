// SPDX-License-Identifier: GPL-2.0
/*
 * A stand-in with the name and the outside of the NVIDIA kernel driver: it binds display functions of vendor 10de,
 * owns character major 195 and fills /proc/driver/nvidia. Behind that there is nothing.
 */
#include <linux/fs.h>
#include <linux/idr.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/pm_runtime.h>
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/seq_file.h>

#define VERSION "550.163.01"
#define MAJOR_NUMBER 195
#define CONTROL_MINOR 255

static bool hang;
module_param(hang, bool, 0644);
MODULE_PARM_DESC(hang, "ioctl() on the control node sleeps uninterruptibly for ever");

static unsigned int refuse;
module_param(refuse, uint, 0644);
MODULE_PARM_DESC(refuse, "Bit mask of GPUs, in the order of their discovery, that probe() refuses");

static unsigned int hang_information;
module_param(hang_information, uint, 0644);
MODULE_PARM_DESC(hang_information, "Bit mask of GPUs, by minor, whose /proc file sleeps uninterruptibly for ever");

static unsigned int wakes;
module_param(wakes, uint, 0444);
MODULE_PARM_DESC(wakes, "How often a GPU has been woken from runtime suspend");

static unsigned int opens;
module_param(opens, uint, 0444);
MODULE_PARM_DESC(opens, "How often one of the device nodes has been opened");

struct gpu {
	struct pci_dev *pci;
	int minor;
	struct proc_dir_entry *directory;
};

static struct proc_dir_entry *nvidia_directory;
static struct proc_dir_entry *gpus_directory;
static DEFINE_IDA(minors);
static unsigned int discovered;

/* A name of its own, so that it stands out in /proc/PID/stack. */
static noinline void standin_wait_for_firmware(void)
{
	for (;;) {
		set_current_state(TASK_UNINTERRUPTIBLE);
		schedule();
	}
}

static int standin_open(struct inode *inode, struct file *file)
{
	opens++;
	return 0;
}

static long standin_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	if (hang && iminor(file_inode(file)) == CONTROL_MINOR)
		standin_wait_for_firmware();
	return -EINVAL;
}

static const struct file_operations node_operations = {
	.owner = THIS_MODULE,
	.open = standin_open,
	.unlocked_ioctl = standin_ioctl,
	.llseek = noop_llseek,
};

static int show_version(struct seq_file *file, void *unused)
{
	seq_puts(file, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  " VERSION "  Release Build  (root@standin)  \n");
	seq_puts(file, "GCC version:  gcc version " __VERSION__ "\n");
	return 0;
}

static int show_params(struct seq_file *file, void *unused)
{
	seq_puts(file, "ResmanDebugLevel: 4294967295\nRmLogonRC: 1\nModifyDeviceFiles: 1\n");
	seq_puts(file, "DeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n");
	seq_puts(file, "InitializeSystemMemoryAllocations: 1\nEnableMSI: 1\nEnableGpuFirmware: 18\n");
	seq_puts(file, "OpenRmEnableUnsupportedGpus: 1\nRegistryDwords: \"\"\n");
	return 0;
}

static int show_registry(struct seq_file *file, void *unused)
{
	seq_puts(file, "Binary: \"\"\n");
	return 0;
}

static int show_information(struct seq_file *file, void *unused)
{
	struct gpu *gpu = file->private;

	if (hang_information & BIT(gpu->minor))
		standin_wait_for_firmware();
	seq_puts(file, "Model: \t\t NVIDIA H100 80GB HBM3\n");
	seq_printf(file, "IRQ:   \t\t %u\n", gpu->pci->irq);
	seq_printf(file, "GPU UUID: \t GPU-57a2d100-0000-4000-8000-%012x\n", gpu->minor);
	seq_puts(file, "Video BIOS: \t 96.00.74.00.09\nBus Type: \t PCIe\nDMA Size: \t 52 bits\n");
	seq_puts(file, "DMA Mask: \t 0xfffffffffffff\n");
	seq_printf(file, "Bus Location: \t %s\n", pci_name(gpu->pci));
	seq_printf(file, "Device Minor: \t %d\n", gpu->minor);
	seq_puts(file, "GPU Firmware: \t " VERSION "\nGPU Excluded:\t No\n");
	return 0;
}

static int publish(struct gpu *gpu)
{
	gpu->directory = proc_mkdir(pci_name(gpu->pci), gpus_directory);
	if (!gpu->directory)
		return -ENOMEM;
	proc_create_single_data("information", 0444, gpu->directory, show_information, gpu);
	proc_create_single("registry", 0444, gpu->directory, show_registry);
	return 0;
}

static int standin_probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	struct gpu *gpu;
	int error;

	if (refuse & BIT(discovered++)) {
		pr_err("NVRM: GPU %s: the stand-in driver was told to refuse this GPU.\n", pci_name(pci));
		return -EIO;
	}
	gpu = devm_kzalloc(&pci->dev, sizeof(*gpu), GFP_KERNEL);
	if (!gpu)
		return -ENOMEM;
	error = pcim_enable_device(pci);
	if (error)
		return error;
	pci_set_master(pci);
	gpu->pci = pci;
	gpu->minor = ida_alloc_max(&minors, CONTROL_MINOR - 1, GFP_KERNEL);
	if (gpu->minor < 0)
		return gpu->minor;
	pci_set_drvdata(pci, gpu);
	error = publish(gpu);
	if (error) {
		ida_free(&minors, gpu->minor);
		return error;
	}
	pm_runtime_put_noidle(&pci->dev); /* it may sleep once power/control says auto */
	return 0;
}

static void standin_remove(struct pci_dev *pci)
{
	struct gpu *gpu = pci_get_drvdata(pci);

	pm_runtime_get_noresume(&pci->dev);
	proc_remove(gpu->directory);
	ida_free(&minors, gpu->minor);
}

static const struct pci_device_id device_ids[] = {
	{ PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID, PCI_ANY_ID, PCI_ANY_ID, PCI_BASE_CLASS_DISPLAY << 16, 0xff0000, 0 },
	{ }
};
MODULE_DEVICE_TABLE(pci, device_ids);

static int standin_suspend(struct device *device)
{
	return 0;
}

static int standin_resume(struct device *device)
{
	wakes++;
	return 0;
}

static DEFINE_RUNTIME_DEV_PM_OPS(power_operations, standin_suspend, standin_resume, NULL);

static struct pci_driver nvidia_driver = {
	.name = "nvidia",
	.id_table = device_ids,
	.probe = standin_probe,
	.remove = standin_remove,
	.driver.pm = pm_ptr(&power_operations),
};

static int make_proc_files(void)
{
	nvidia_directory = proc_mkdir("driver/nvidia", NULL);
	if (!nvidia_directory)
		return -ENOMEM;
	gpus_directory = proc_mkdir("gpus", nvidia_directory);
	proc_create_single("version", 0444, nvidia_directory, show_version);
	proc_create_single("params", 0444, nvidia_directory, show_params);
	proc_create_single("registry", 0444, nvidia_directory, show_registry);
	return gpus_directory ? 0 : -ENOMEM;
}

/* /proc/devices shows one line for the GPUs' minors and one for the control node, as open modules since 545 do. */
static int register_nodes(void)
{
	int error = __register_chrdev(MAJOR_NUMBER, 0, CONTROL_MINOR, "nvidia", &node_operations);

	if (error)
		return error;
	error = __register_chrdev(MAJOR_NUMBER, CONTROL_MINOR, 1, "nvidiactl", &node_operations);
	if (error)
		__unregister_chrdev(MAJOR_NUMBER, 0, CONTROL_MINOR, "nvidia");
	return error;
}

static void unregister_nodes(void)
{
	__unregister_chrdev(MAJOR_NUMBER, CONTROL_MINOR, 1, "nvidiactl");
	__unregister_chrdev(MAJOR_NUMBER, 0, CONTROL_MINOR, "nvidia");
}

static int __init standin_nvidia_init(void)
{
	int error = register_nodes();

	if (error)
		return error;
	error = make_proc_files();
	if (!error)
		error = pci_register_driver(&nvidia_driver);
	if (error) {
		proc_remove(nvidia_directory);
		unregister_nodes();
	}
	return error;
}

static void __exit standin_nvidia_exit(void)
{
	pci_unregister_driver(&nvidia_driver);
	proc_remove(nvidia_directory);
	unregister_nodes();
}

module_init(standin_nvidia_init);
module_exit(standin_nvidia_exit);
MODULE_ALIAS_CHARDEV_MAJOR(MAJOR_NUMBER);
MODULE_LICENSE("GPL");
MODULE_VERSION(VERSION);
MODULE_DESCRIPTION("Stand-in for the NVIDIA kernel driver without hardware, for gpudoctor's tests");
