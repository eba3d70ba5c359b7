// SPDX-License-Identifier: GPL-2.0
/*
 * A driver under the name of another, such as nouveau or vfio-pci: it takes every display function of vendor 10de that
 * no driver holds, and does nothing with it.
 */
#include <linux/module.h>
#include <linux/pci.h>

static char *name = "nouveau";
module_param(name, charp, 0444);
MODULE_PARM_DESC(name, "The driver's name");

static int rival_probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	return 0;
}

static const struct pci_device_id device_ids[] = {
	{ PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID, PCI_ANY_ID, PCI_ANY_ID, PCI_BASE_CLASS_DISPLAY << 16, 0xff0000, 0 },
	{ }
};

static struct pci_driver rival_driver = {
	.id_table = device_ids,
	.probe = rival_probe,
};

static int __init rival_init(void)
{
	rival_driver.name = name;
	return pci_register_driver(&rival_driver);
}

static void __exit rival_exit(void)
{
	pci_unregister_driver(&rival_driver);
}

module_init(rival_init);
module_exit(rival_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Stand-in for a driver that holds GPUs instead of nvidia, for gpudoctor's tests");
